"""Decay factors between tokens, for linear attention with fixed decays
(models/minimax-01.cpp:llm_graph_input_la)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_py.types import F32
from llama_py.batch import UBatch
from llama_py.graph.inputs.base import new_input, write
from llama_py.graph.params import GraphParams

Rows = npt.NDArray[np.float32]


def compute_slopes(n_head: int) -> Rows:
    """Return each head's decay rate: a geometric series, in float32 steps like the C code."""
    n = np.log2(np.float32(n_head)) - np.float32(3)
    first = np.float32(2.0 ** -np.float64(np.float32(2.0 ** -np.float64(n))))
    powers = np.float64(first) ** np.arange(n_head)
    rows: Rows = first * powers.astype(np.float32)
    return rows


class InputDecay:
    """Logarithms of decays for a layer with factor 1. T tokens of each of B sequences.

    slopes  F32 [n_head]
    q       F32 [1, n_head, T, B] from before the ubatch to a token
    k       F32 [1, n_head, T, B] from a token to the ubatch's last one
    diag    F32 [T, T, n_head, B] from one token (first axis) to another; -inf to earlier tokens
    """

    def __init__(self, params: GraphParams) -> None:
        n_head = params.hparams.n_head[0]
        n_tokens, n_seqs = params.ubatch.n_seq_tokens, params.ubatch.n_seqs
        self.rates = compute_slopes(n_head)
        self.slopes = new_input("slopes", F32, n_head)
        self.q = new_input("q_decay_exp", F32, 1, n_head, n_tokens, n_seqs)
        self.k = new_input("k_decay_exp", F32, 1, n_head, n_tokens, n_seqs)
        self.diag = new_input("diag_decay_exp", F32, n_tokens, n_tokens, n_head, n_seqs)

    def set_input(self, ubatch: UBatch) -> None:
        n_tokens = self.q.ne[2]
        pos = ubatch.pos[: ubatch.n_tokens].reshape(-1, n_tokens).astype(np.int64)
        pos = pos - pos.min(1, keepdims=True)  # [B, T]
        write(self.slopes, self.rates)
        write(self.q, self._decays(pos + 1))
        write(self.k, self._decays(n_tokens - pos - 1))
        if self.diag.buffer is not None:
            steps = pos[:, None, :, None] - pos[:, None, None, :]
            rates = self.rates[:, None, None]
            decays = np.where(steps >= 0, -rates * steps, -np.inf)
            write(self.diag, decays.astype(np.float32))

    def _decays(self, steps: npt.NDArray[np.int64]) -> Rows:
        """Return the decay exponents after `steps` tokens: [B, T] -> [B, T, n_head, 1]."""
        return (-self.rates * steps[..., None].astype(np.float32))[..., None]

    def can_reuse(self, params: GraphParams) -> bool:
        ubatch = params.ubatch
        return self.q.ne[2:] == (ubatch.n_seq_tokens, ubatch.n_seqs)
