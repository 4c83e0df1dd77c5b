"""Compression of several tokens into one key: a weighted sum, with one weight per dimension
(models/deepseek4.cpp:build_hca_compressed_kv_from_state, build_overlap_compressed_kv_from_state).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ggml_py.ops import (
    add,
    concat,
    cont,
    get_rows,
    mul,
    permute,
    reshape,
    scale,
    soft_max,
    sum_rows,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.blocks.last_channels import Turn
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.compressed import InputCompressed
from llama_py.memory.kv_rot import rotate
from llama_py.memory.specs import CompressedSpec
from llama_py.weights import Weights


def inp_compressed(g: GraphBuilder, kind: str, f16: bool) -> InputCompressed:
    """Return the input tensors of one type of compressed keys, shared by all layers that use it."""
    return g.shared(f"compressed {kind}", lambda: g.add_input(InputCompressed(g.params, kind, f16)))


class CompressorState(NamedTuple):
    """Values that compressed keys are summed from, and their scores, [n_embd_state, n] each."""

    kv: Tensor
    score: Tensor


class Compressor:
    """Key of each `ratio` tokens of a sequence. With overlap it also includes the `ratio` tokens
    before: each token has two vectors, one for the key after its own and one for its own."""

    def __init__(self, w: Weights, n_embd: int, kept: CompressedSpec, stem: str) -> None:
        n = kept.n_embd_state
        self.kept = kept
        self.wkv = w.linear(f"{stem}_kv", n_embd, n, scaled=False)
        self.gate = w.linear(f"{stem}_gate", n_embd, n, scaled=False)
        self.ape = w.tensor(f"{stem}_ape.weight", n, kept.ratio)
        self.norm = w.norm(f"{stem}_norm", kept.n_embd_head)

    def state(self, g: GraphBuilder, cur: Tensor, inp: InputCompressed, il: int) -> CompressorState:
        """Compute values and scores: [n_embd, n_tokens] -> [n_embd_state, n_tokens] each."""
        name = f"{self.kept.kind}_state"
        kv = g.cb(self.wkv(g, cur), f"{name}_kv", il)
        score = g.cb(self.gate(g, cur), f"{name}_score", il)
        score = add(score, get_rows(self.ape, inp.state_pos))
        return CompressorState(kv, g.cb(score, f"{name}_score_ape", il))

    def store(
        self, g: GraphBuilder, own: CompressorState, inp: InputCompressed, turn: Turn, il: int
    ) -> None:
        """Store the compressed keys that are complete and the state that later keys need."""
        mem, kind = inp.tensors, f"{self.kept.kind}_state_compress"
        held = mem.kv[il], mem.score[il]
        old = CompressorState(*(self._restore(inp, t) for t in held))
        before = CompressorState(*(view(t, (t.ne[0], mem.sizes.n_rows)) for t in old))
        source = CompressorState(*(concat(a, b, 1) for a, b in zip(before, own, strict=True)))
        make = self._overlapping if self.kept.overlap else self._load_own
        key = self._key(g, *make(g, source, inp, il), inp, turn, il)
        if inp.k_rot is not None:
            key = g.cb(rotate(key, inp.k_rot), f"{kind}_rot", il)
        g.expand(mem.keys.cpy_k(key, inp.write, il))
        if inp.snapshot is not None:
            src, dst = inp.snapshot
            every = [concat(a, b, 1) for a, b in zip(old, own, strict=True)]
            pairs = zip(held, every, strict=True)
            for t in [mem.set_state(t, get_rows(x, src), dst) for t, x in pairs]:
                g.expand(t)
        last = [get_rows(t, inp.persist_src) for t in own]
        kept = [mem.set_state(t, x, inp.persist_dst) for t, x in zip(held, last, strict=True)]
        for t in kept:
            g.expand(t)

    def _restore(self, inp: InputCompressed, t: Tensor) -> Tensor:
        """Return all planes of a state, the current one restored after a rollback: [n_embd_state,
        rows]."""
        rows = inp.tensors.get_state(t)
        if inp.restore is None:
            return rows
        src, dst = inp.restore
        return inp.tensors.set_state(t, get_rows(rows, src), dst)

    def _load_own(
        self, g: GraphBuilder, source: CompressorState, inp: InputCompressed, il: int
    ) -> tuple[Tensor, Tensor]:
        """Read values and scores of each key's own tokens: [n_embd_head, ratio, n_keys] each."""
        d, n = self.kept.n_embd_head, self.kept.ratio
        name, n_keys = f"{self.kept.kind}_state_compress", inp.write_pos.ne[0]
        rows = (g.cb(reshape(get_rows(t, inp.read), d, n, n_keys), name, il) for t in source)
        values, scores = rows
        return values, scores

    def _overlapping(
        self, g: GraphBuilder, source: CompressorState, inp: InputCompressed, il: int
    ) -> tuple[Tensor, Tensor]:
        """Read values and scores of keys that overlap, [n_embd_head, 2 * ratio, n_keys] each."""
        d, n, n_keys = self.kept.n_embd_head, self.kept.ratio, inp.write_pos.ne[0]
        name, n_read = f"{self.kept.kind}_state_compress", n * n_keys
        nothing = CompressorState(_with_row(source.kv, 0.0), _with_row(source.score, -math.inf))
        rows = [get_rows(t, inp.read) for t in nothing]
        halves = []
        for t in rows:
            before = cont(view(t, (d, n_read)))
            own = cont(view(t, (d, n_read), offset=n_read * t.ne[0] + d))
            before = g.cb(reshape(before, d, n, n_keys), name, il)
            halves.append(concat(before, reshape(own, d, n, n_keys), 1))
        return halves[0], halves[1]

    def _key(
        self,
        g: GraphBuilder,
        values: Tensor,
        scores: Tensor,
        inp: InputCompressed,
        turn: Turn,
        il: int,
    ) -> Tensor:
        """Sum values by softmax of scores, and rotate: [d, n, n_keys] -> [d, 1, n_keys]."""
        name = f"{self.kept.kind}_state_compress"
        values, scores = (cont(permute(t, 1, 0, 2, 3)) for t in (values, scores))
        key = sum_rows(mul(values, soft_max(scores)))
        key = g.cb(cont(permute(key, 1, 0, 2, 3)), name, il)
        key = self.norm(g, key, name, il)
        return g.cb(turn(key, inp.write_pos), name, il)


def _with_row(t: Tensor, value: float) -> Tensor:
    """Append one row filled with `value`: [n, rows] -> [n, rows + 1]."""
    row = scale(view(t, t.ne[:1]), 0.0, value)
    return concat(t, reshape(row, t.ne[0], 1), 1)
