"""Metrics of an engine, which only grow (llama-server's /metrics)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields


@dataclass(slots=True)
class Metrics:
    """
    n_steps, n_busy   steps, and slots at work in them, added up
    n_prompt, prompt_seconds   tokens of prompts that were computed, and the time of steps with them
    n_reused          tokens of prompts that were held already
    n_gen, gen_seconds         tokens of answers, and the time of the steps of each, added up
    n_drafts, n_drafted, n_accepted   steps that checked guesses, guesses, and those that were right
    n_longest         tokens of the longest sequence: its prompt and its answer
    n_texts           texts that were read for embeddings or ranks
    ended             requests by the reason of their end
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
    ended: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Metrics) -> Metrics:
        """Add the metrics of two engines."""
        found = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return Metrics(**{**found, "n_longest": max(self.n_longest, other.n_longest)})


@dataclass(frozen=True, slots=True)
class Now:
    """Current and total metrics of an engine.

    n_busy, n_waiting  requests with a slot, and without
    n_cells            tokens in the memory, of all sequences
    state_bytes        states in host memory;  n_evicted  states evicted so far
    """

    total: Metrics
    n_busy: int
    n_waiting: int
    n_cells: int
    state_bytes: int
    n_evicted: int
