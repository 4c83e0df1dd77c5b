"""Inputs of models with media (rows of embd in place of tokens) that never depend on the text."""

from __future__ import annotations

import numpy as np

from ggml_py.types import F16, F32
from llama_py.batch import UBatch
from llama_py.graph.inputs.base import new_input, write
from llama_py.graph.params import GraphParams


class InputMediaMask:
    """Mask of attention within a ubatch.

    own_kind  text and media see only themselves; otherwise text also sees media
    kq_mask   [n_tokens, n_tokens], F16 for flash attention, else F32
    """

    def __init__(self, params: GraphParams, own_kind: bool) -> None:
        n, self.own_kind = params.ubatch.n_tokens, own_kind
        self.kq_mask = new_input("", F16 if params.cparams.flash_attn else F32, n, n, 1, 1)

    def set_input(self, ubatch: UBatch) -> None:
        seqs, media = np.array([ids[0] for ids in ubatch.seq_id]), ubatch.embd_rows
        seen = media == media[:, None] if self.own_kind else media | ~media[:, None]
        seen &= seqs == seqs[:, None]
        dtype = np.float16 if self.kq_mask.type is F16 else np.float32
        write(self.kq_mask, np.where(seen, dtype(0), dtype(-np.inf)))

    def can_reuse(self, params: GraphParams) -> bool:
        return self.kq_mask.ne[0] == params.ubatch.n_tokens


class InputNeighbors:
    """Factors of the tokens before and after a token in a convolution: 1, or 0 if one is missing.

    left, right  F32 [1, n_tokens]; the last row of media does not read the text after it
    """

    def __init__(self, params: GraphParams) -> None:
        self.left, self.right = (new_input("", F32, 1, params.ubatch.n_tokens) for _ in range(2))

    def set_input(self, ubatch: UBatch) -> None:
        seqs, media = np.array([ids[0] for ids in ubatch.seq_id]), ubatch.embd_rows
        pos = ubatch.pos[: ubatch.n_tokens]
        follows = (seqs[1:] == seqs[:-1]) & (pos[1:] == pos[:-1] + 1)
        reads = follows & (media[1:] | ~media[:-1])
        write(self.left, np.concatenate([[0], follows]).astype(np.float32))
        write(self.right, np.concatenate([reads, [0]]).astype(np.float32))

    def can_reuse(self, params: GraphParams) -> bool:
        return self.left.ne[1] == params.ubatch.n_tokens
