"""What every graph starts from: its sizes, names, inputs, and the smallest blocks
(llama-graph.cpp:llm_graph_context)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ggml_py.ops import (
    add,
    get_rows,
    mul,
    mul_mat,
    mul_mat_id,
    repeat_4d,
    reshape,
    rms_norm,
    scale,
    tanh,
)
from ggml_py.tensor import Tensor
from llama_py.inputs import GraphParams, GraphResult, InputEmbd, InputOutIds, InputPos
from llama_py.weights import Linear

if TYPE_CHECKING:
    from llama_py.models._base import Model


class GraphContext(ABC):
    """Builds one graph. `expand(t)` fixes the order of execution, `cb(t, name, il)` gives names.

    Shapes in comments are in ggml's order; n_tokens is the ubatch's.
    names   what tensors of shared blocks are called in this graph, where it is something else;
            "" leaves a tensor to its automatic name
    layer_sum  what a layer's result is called before a control vector is added
    """

    names: Mapping[str, str] = {}
    layer_sum = ""

    def __init__(self, model: Model, params: GraphParams) -> None:
        hparams = params.hparams
        self.model = model
        self.params = params
        self.hparams = hparams
        self.cparams = params.cparams
        self.ubatch = params.ubatch
        self.mctx = params.mctx
        self.res = GraphResult(params)
        self.gf = self.res.graph
        self.expand = self.gf.build_forward_expand
        self.n_embd = hparams.n_embd
        self.n_layer = hparams.n_layer
        self.n_tokens = params.ubatch.n_tokens
        self.n_outputs = params.n_outputs

    @abstractmethod
    def build(self) -> None:
        """Build the architecture's graph into `gf`, set `res.t_logits` and `res.t_embd`."""

    def cb(self, t: Tensor, name: str, il: int = -1) -> Tensor:
        """Name a tensor as llama.cpp does, and return it."""
        if name == "norm" and il >= 0:
            self.res.in_layer.append((t, il))
        name = self.names.get(name, name)
        if name:
            t.name = f"{name}-{il}" if il >= 0 else name
        return t

    def build_mm(self, w: Linear, cur: Tensor) -> Tensor:
        """scale * (W x) (build_lora_mm). cur [n_in, n] -> [n_out, n]"""
        res = mul_mat(w.weight, cur)
        return res if w.scale is None else mul(res, w.scale)

    def build_mm_id(self, w: Linear, cur: Tensor, ids: Tensor) -> Tensor:
        """Each token times the matrices of its experts, each with its scale (build_lora_mm_id).

        cur [n_in, 1 or n_used, n_tokens], ids [n_used, n_tokens] -> [n_out, n_used, n_tokens]
        """
        res = mul_mat_id(w.weight, cur, ids)
        if w.scale is None:
            return res
        n_expert = w.scale.ne[0]
        scales = reshape(w.scale, 1, n_expert, 1)
        scales = repeat_4d(scales, 1, n_expert, cur.ne[2], 1)
        return mul(res, get_rows(scales, ids))

    def build_norm(self, cur: Tensor, weight: Tensor | None, il: int = -1) -> Tensor:
        """RMS norm of each row, times the weight. cur [n, ...], weight [n]"""
        cur = rms_norm(cur, self.hparams.f_norm_rms_eps)
        return cur if weight is None else mul(self.cb(cur, "norm", il), weight)

    def layer_out(self, cur: Tensor, il: int) -> Tensor:
        """A layer's result, moved by the control vector if there is one (build_cvec)."""
        if self.params.cvec is not None:
            cur = self.params.cvec.apply_to(self.cb(cur, self.layer_sum, il), il)
        return self.cb(cur, "l_out", il)

    def build_inp_embd(self, tok_embd: Tensor) -> Tensor:
        """Embeddings of the tokens, or those that the batch brought. -> [n_embd, n_tokens]"""
        inp = self.res.add_input(InputEmbd(self.n_embd, self.n_tokens))
        rows = get_rows(tok_embd, inp.tokens)
        cur = self.gf.select([rows, inp.embd], 0 if self.ubatch.token is not None else 1)
        return self.expand(self.cb(cur, "embd"))

    def build_inp_pos(self) -> Tensor:
        """Positions. -> I32 [n_tokens * n_pos_per_embd]"""
        return self.res.add_input(InputPos(self.hparams.n_pos_per_embd, self.n_tokens)).pos

    def build_inp_out_ids(self) -> Tensor:
        """Which tokens are outputs. -> I32 [n_outputs]"""
        return self.res.add_input(InputOutIds(self.n_outputs)).out_ids

    def build_head(self, cur: Tensor, head: Linear | None = None) -> None:
        """The graph's end: logits of `cur` [n_embd, n_outputs], by its own head or the model's."""
        head = head or self.model.output
        logits = self.build_mm(head, cur)
        if head.bias is not None:
            logits = add(logits, head.bias)
        if cap := self.hparams.final_logit_softcap:
            logits = scale(tanh(scale(logits, 1.0 / cap)), cap)
        self.res.t_logits = self.expand(self.cb(logits, "result_output"))


def inv_sqrt(n: int) -> float:
    """1 / sqrt(n) in float32 steps, as the C code computes it."""
    return float(np.float32(1.0) / np.sqrt(np.float32(n)))
