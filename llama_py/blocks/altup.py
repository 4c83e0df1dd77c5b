"""AltUp: a layer computes one stream of several parallel streams and corrects the others
(arXiv 2301.13310; models/gemma3n.cpp). Streams are [n_embd, n_tokens, n_altup]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggml_py._moved import former_names
from ggml_py.ops import (
    add,
    concat,
    cont,
    div,
    mul,
    mul_mat,
    permute,
    repeat_4d,
    reshape,
    scale,
    sqr,
    sqrt,
    sub,
    sum_rows,
    tanh,
    transpose,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.weights import Weights


def stream(x: Tensor, i: int) -> Tensor:
    """Return stream `i` of x as a view: [n, n_tokens, n_altup] -> [n, n_tokens]."""
    return view(x, x.ne[:2], offset=i * x.ne[0] * x.ne[1])


def drop_first_stream(x: Tensor) -> Tensor:
    """Return all streams of x but the first, which layers compute, as a view."""
    return view(x, (*x.ne[:2], x.ne[2] - 1), offset=x.ne[0] * x.ne[1])


def _magnitude(x: Tensor) -> Tensor:
    return sqrt(sum_rows(sqr(x)))


class AltUpEnds:
    """Expansion of one stream to several before the first layer, and the merge after the last."""

    def __init__(self, w: Weights, n_embd: int, n_altup: int) -> None:
        self.n_altup = n_altup
        self.proj = w.tensor("altup_proj.weight", n_embd, n_embd, n_altup - 1)
        self.unembd_proj = w.tensor("altup_unembd_proj.weight", n_embd, n_embd, n_altup - 1)

    def stack(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Stack x [n_embd, n_tokens] and its projections, scaled to its magnitude, into streams."""
        target = _magnitude(x)
        repeated = repeat_4d(x, *x.ne[:2], self.n_altup - 1, 1)
        added = g.mm(self.proj, repeated)
        added = div(mul(added, target), _magnitude(added))
        return g.cb(concat(x, added, 2), "inp_stacked")

    def merge(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Average the first stream and the rescaled projections of the others into [n_embd,
        n_tokens]."""
        target = _magnitude(stream(x, 0))
        back = g.mm(self.unembd_proj, drop_first_stream(x))
        back = div(mul(back, target), _magnitude(back))
        g.cb(back, "altup_unembd")
        cur = stream(x, 0)
        for i in range(self.n_altup - 1):
            cur = add(cur, stream(back, i))
        return g.cb(scale(cur, 1.0 / self.n_altup), "unembd_merged")


class AltUp:
    """A layer's prediction of streams from each other, and correction by the computed stream."""

    def __init__(self, w: Weights, n_embd: int, n: int) -> None:
        self.n_embd, self.n = n_embd, n
        self.predict_coef = w.linear("altup_predict_coef", n, n * n, scaled=False)
        self.correct_coef = w.linear("altup_correct_coef", n, n, scaled=False)
        self.router = w.tensor("altup_router.weight", n_embd, n)
        self.router_norm = w.norm("altup_router_norm", n_embd)

    def predict(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Predict every stream from all streams: [n_embd, n_tokens, n] -> same shape."""
        n = self.n
        coefs = self.predict_coef(g, self._modalities(g, stream(cur, 0), il))
        coefs = reshape(g.cb(coefs, "all_coefs", il), n, n, cur.ne[1])
        mixed = mul_mat(cont(permute(cur, 1, 2, 0, 3)), coefs)  # [n_embd, n, n_tokens]
        return g.cb(add(cont(permute(mixed, 0, 2, 1, 3)), cur), "predictions", il)

    def correct(self, g: GraphBuilder, predicted: Tensor, activated: Tensor, il: int) -> Tensor:
        """Correct all streams by the error of the first; `activated` [n_embd, n_tokens]: its
        result."""
        n, n_tokens = self.n, activated.ne[1]
        modalities = self._modalities(g, activated, il)
        innovation = g.cb(sub(activated, stream(predicted, 0)), "innovation", il)
        coefs = scale(self.correct_coef(g, modalities), 1.0, 1.0)
        coefs = cont(transpose(g.cb(coefs, "all_coefs", il)), 1, n_tokens, n)
        corrected = mul(repeat_4d(innovation, self.n_embd, n_tokens, n, 1), coefs)
        return g.cb(add(corrected, predicted), "corrected", il)

    def _modalities(self, g: GraphBuilder, x: Tensor, il: int) -> Tensor:
        """Compute the router's modalities: [n_embd, n_tokens] -> [n, n_tokens]."""
        x = scale(self.router_norm(g, x, il=il), 1.0 / self.n_embd)
        return g.cb(tanh(g.mm(self.router, x)), "modalities", il)


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, others="drop_first_stream")
