"""Distances between tokens, in buckets that grow with the distance."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.types import I32
from llama_py.batch import UBatch
from llama_py.graph.inputs.base import new_input, write
from llama_py.graph.params import GraphParams
from llama_py.memory.specs import BASE

MAX_DISTANCE = 128  # larger distances are in the last bucket


def bucket(p0: Any, p1: Any, n_buckets: int, bidirectional: bool) -> npt.NDArray[np.int32]:
    """Return the bucket of position p0 relative to p1
    (llama-graph.cpp:llama_relative_position_bucket).

    Half of the buckets are for one distance each; the others grow logarithmically. With
    `bidirectional`, the second half of all is for positions after p1; else these are in bucket 0.
    """
    distance = np.asarray(p0 - p1, np.int32)
    offset = np.zeros_like(distance)
    if bidirectional:
        n_buckets //= 2
        offset = np.where(distance > 0, np.int32(n_buckets), np.int32(0))
        distance = np.abs(distance)
    else:
        distance = -np.minimum(distance, 0)
    exact = n_buckets // 2
    log = np.log(np.maximum(distance, exact).astype(np.float32) / np.float32(exact))
    far = log * np.float32(n_buckets - exact) / np.log(MAX_DISTANCE / exact)
    large = np.floor((exact + far).astype(np.float32)).astype(np.int32)
    found = np.where(distance < exact, distance, np.minimum(large, n_buckets - 1))
    return np.asarray(offset + found, np.int32)


class InputPosBucket:
    """Buckets of the ubatch's tokens relative to each other, pos_bucket I32 [n_tokens, n_tokens]
    (llm_graph_input_pos_bucket)."""

    def __init__(self, params: GraphParams, n_buckets: int) -> None:
        self.n_buckets, self.n_stream = n_buckets, 1
        n_tokens = params.ubatch.n_tokens
        self.pos_bucket = new_input("pos_bucket_enc", I32, n_tokens, n_tokens)

    def set_input(self, ubatch: UBatch) -> None:
        pos = ubatch.pos[: ubatch.n_tokens]
        write(self.pos_bucket, bucket(pos[None, :], pos[:, None], self.n_buckets, True))

    def can_reuse(self, params: GraphParams) -> bool:
        return self.pos_bucket.ne[0] == params.ubatch.n_tokens


class InputPosBucketKV:
    """Buckets of the cells of each token's stream, relative to the token: pos_bucket I32
    [n_kv, n_tokens] (llm_graph_input_pos_bucket_kv).

    n_stream  number of sequences with a separate cache; each has the same number of tokens
    """

    def __init__(self, params: GraphParams, n_buckets: int) -> None:
        self.n_buckets = n_buckets
        self.mctx = params.mctx.kv(BASE)
        self.n_stream = 1 if params.cparams.kv_unified else params.ubatch.n_seqs_unq
        self.pos_bucket = new_input("pos_bucket_dec", I32, *self._ne(params))

    def _ne(self, params: GraphParams) -> tuple[int, int]:
        return self.mctx.get_n_kv(), params.ubatch.n_tokens

    def set_input(self, ubatch: UBatch) -> None:
        n_kv, kv = self.pos_bucket.ne[0], self.mctx.kv
        # -1 in empty cells, which are masked
        p0 = np.stack([kv.cells[s].pos[:n_kv] for s in self.mctx.place.strm])[:, None]
        p1 = ubatch.pos[: ubatch.n_tokens].reshape(len(p0), -1, 1)
        write(self.pos_bucket, bucket(p0, p1, self.n_buckets, False))

    def can_reuse(self, params: GraphParams) -> bool:
        self.mctx = params.mctx.kv(BASE)
        return self.pos_bucket.ne[:2] == self._ne(params)
