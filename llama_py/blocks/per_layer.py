"""Separate inputs for each layer: a projection of the first layer's input, alone or plus a token
embedding (models/gemma3n.cpp:build_inp_per_layer, project_per_layer_inputs)."""

from __future__ import annotations

from ggml_py.ops import add, cast, cont, gelu, mul, permute, reshape, scale, view
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.blocks.functions import inv_sqrt
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.tokens import InputEmbd
from llama_py.hparams import HParams
from llama_py.weights import Weights


class LayerGate:
    """A layer's separate input, gated by a stream.

    n_embd_per_layer   dimensions of the layer's input
    """

    def __init__(self, w: Weights, n_embd: int, n_embd_per_layer: int) -> None:
        self.inp_gate = w.linear("inp_gate", n_embd, n_embd_per_layer, scaled=False)
        self.proj = w.linear("proj", n_embd_per_layer, n_embd, scaled=False)
        self.post_norm = w.norm("post_norm", n_embd)

    def __call__(self, g: GraphBuilder, cur: Tensor, mine: Tensor, il: int) -> Tensor:
        """Gate `mine` [n_embd_per_layer, n] by cur [n_embd, n]. -> like cur"""
        cur = g.cb(gelu(self.inp_gate(g, cur)), "first_prediction_gated", il)
        cur = g.cb(mul(cur, mine), "first_prediction_scaled", il)
        return self.post_norm(g, self.proj(g, cur), "first_prediction_out", il)


class ProjectedInputs:
    """Separate inputs for each layer: a projection of the first layer's input.

    n_embd   dimensions of a layer's input
    """

    def __init__(self, w: Weights, hp: HParams, n_embd: int) -> None:
        self.n_embd, self.n_layer = n_embd, hp.n_layer
        self.proj = w.tensor("per_layer_model_proj.weight", hp.n_embd, n_embd * hp.n_layer)
        self.norm = w.norm("per_layer_proj_norm", n_embd)

    def __call__(self, g: GraphBuilder, inp: Tensor) -> Tensor:
        """Compute all layers' inputs from inp [n_embd of the model, n_tokens]. -> [n_embd,
        n_tokens, n_layer]"""
        return cont(permute(self.project(g, inp, "inp_per_layer"), 0, 2, 1, 3))

    def project(self, g: GraphBuilder, inp: Tensor, name: str) -> Tensor:
        """Return the normed projection of inp [n_embd of the model, n_tokens]. -> [n_embd, n_layer,
        n_tokens]"""
        proj = scale(g.mm(self.proj, inp), inv_sqrt(inp.ne[0]))
        return self.norm(g, reshape(proj, self.n_embd, self.n_layer, g.n_tokens), name)


class PerLayerInputs(ProjectedInputs):
    """The projection plus an embedding of the token."""

    def __init__(self, w: Weights, hp: HParams, n_embd: int) -> None:
        table = "per_layer_token_embd.weight"
        self.token_embd = w.tensor(table, n_embd * hp.n_layer, hp.n_vocab)
        super().__init__(w, hp, n_embd)

    def __call__(self, g: GraphBuilder, inp: Tensor) -> Tensor:
        selected = g.expand(self._select_rows(g))
        both = scale(add(self.project(g, inp, "per_layer_proj"), selected), inv_sqrt(2))
        return cont(permute(g.cb(both, "inp_per_layer"), 0, 2, 1, 3))

    def _select_rows(self, g: GraphBuilder) -> Tensor:
        """Return the tokens' rows, or the padding row if the input is embeddings.
        -> [n_embd, n_layer, n_tokens or 1]"""
        factor = self.n_embd**0.5
        if g.ubatch.token is None:
            row = cast(view(self.token_embd, (self.token_embd.ne[0],)), F32)
            padding = reshape(scale(row, factor), self.n_embd, self.n_layer, 1)
            return g.cb(padding, "inp_per_layer_multimodal")
        inp = g.add_input(InputEmbd(g.hp.n_embd_inp, g.n_tokens, ("", "")))
        rows = g.rows(self.token_embd, inp.tokens)
        rows = scale(reshape(rows, self.n_embd, self.n_layer, g.n_tokens), factor)
        return g.cb(rows, "inp_per_layer_selected")
