"""Saved state of a `Llama`."""

from __future__ import annotations

from dataclasses import dataclass

from llama_py.batch import F32, I32


@dataclass
class LlamaState:
    """Saved state of a `Llama`: tokens, logits with `logits_all`, memory, seed."""

    input_ids: I32
    scores: F32
    n_tokens: int
    llama_state: bytes
    llama_state_size: int
    seed: int
