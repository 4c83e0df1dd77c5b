"""Metrics of an engine, which only grow (llama-server's /metrics)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields

from ggml_py.backend import ExpertStats


@dataclass(slots=True)
class Metrics:
    """Counters and times of an engine.

    n_steps, n_busy   steps; sum of their busy slots
    n_prompt, prompt_seconds   computed prompt tokens, and the time of their steps
    n_reused          cached prompt tokens
    n_gen, gen_seconds         generated tokens, and the sum of their requests' step times
    n_drafts, n_drafted, n_accepted   verification steps, draft tokens, accepted draft tokens
    n_longest         tokens of the longest sequence, prompt and response
    n_texts           texts processed for embeddings or reranking
    n_scored          given tokens whose log probabilities were computed
    ended             requests by finish reason
    experts           counters of the model's cache of experts
    """

    n_steps: int = 0
    n_busy: int = 0
    n_prompt: int = 0
    prompt_seconds: float = 0.0
    n_reused: int = 0
    n_gen: int = 0
    gen_seconds: float = 0.0
    n_drafts: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    n_longest: int = 0
    n_texts: int = 0
    n_scored: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    experts: ExpertStats = field(default_factory=ExpertStats)

    def __add__(self, other: Metrics) -> Metrics:
        """Add the metrics of two engines."""
        found = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return Metrics(**{**found, "n_longest": max(self.n_longest, other.n_longest)})


@dataclass(frozen=True, slots=True)
class Now:
    """Current and total metrics of an engine.

    n_busy, n_waiting  requests with a slot, and without
    n_cells            tokens in the memory, of all sequences
    state_bytes        bytes of states in host memory;  n_evicted  total of evicted states
    state_limit        maximum of state_bytes; -1: no limit
    """

    total: Metrics
    n_busy: int
    n_waiting: int
    n_cells: int
    state_bytes: int
    n_evicted: int
    state_limit: int
