"""One row for a whole sequence: embeddings and rerankers (llama-graph.cpp:build_pooling)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ggml_py.ops import cont, gelu_erf, get_rows, mul_mat, silu, tanh, transpose
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.pooling import InputCls, InputMean
from llama_py.graph.linear import Linear, Norm
from llama_py.hparams import HParams
from llama_py.weights import Weights

# Activations of a classifier's dense layer, by the values of classifier.activation.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": gelu_erf, "silu": silu, "tanh": tanh}


@dataclass(frozen=True, slots=True)
class Classifier:
    """Classifier of a pooled row: optional dense layer, activation, norm, projection to scores, and
    final function.

    activation  of a file without the key classifier.activation
    """

    dense: Linear | None = None
    out: Linear | None = None
    norm: Norm | None = None
    activation: Callable[[Tensor], Tensor] = tanh
    after: Callable[[Tensor], Tensor] | None = None

    def __call__(self, g: GraphBuilder, cur: Tensor) -> Tensor:
        """Compute scores of pooled rows: [n_embd, n_seqs] -> [n_cls_out, n_seqs]."""
        if self.dense is not None:
            act = ACTIVATIONS.get(g.hp.cls_activation, self.activation)
            cur = act(self.dense(g, cur))
            if self.norm is not None:
                cur = self.norm(g, cur)
        if self.out is not None:
            cur = self.out(g, cur)
        return cur if self.after is None else self.after(cur)


def classifier(w: Weights, hp: HParams) -> Classifier:
    """Declare a dense layer and the projection to scores, each if the file has it."""
    return Classifier(
        w.optional_linear("cls", hp.n_embd, hp.n_embd, bias=True, scaled=False),
        w.optional_linear("cls.output", hp.n_embd, hp.n_cls_out, bias=True, scaled=False),
    )


def pool(g: GraphBuilder, classifier: Classifier | None) -> None:
    """Set t_embd_pooled: the rows of t_embd, pooled per sequence by cparams.pooling.

    none   unchanged
    mean   their mean;  cls, last  the first, the last token's
    rank   scores by the model's classifier, which reads the first token, the last with causal
           attention, or the mean, depending on the model
    """
    cur = g.res.t_embd
    assert cur is not None
    how = g.cparams.pooling
    if how == "mean" or (how == "rank" and g.hp.classifies_mean):
        mean = g.add_input(InputMean(g.params)).mean
        cur = mul_mat(cont(transpose(cur)), mean)
    elif how != "none":
        last = how == "last" or (how == "rank" and g.cparams.causal_attn)
        cur = get_rows(cur, g.add_input(InputCls(g.params, last)).cls)
    if how == "rank" and classifier is not None:
        cur = classifier(g, cur)
    g.res.t_embd_pooled = g.expand(g.cb(cur, "result_embd_pooled"))


def project_pooled(g: GraphBuilder, dense: Sequence[Linear]) -> None:
    """Project pooled embeddings by a sentence transformer's dense layers (build_dense_out).
    [n_embd, n] -> [n_embd_out, n]"""
    cur = g.res.t_embd_pooled
    assert cur is not None
    for linear in dense:
        cur = linear(g, cur)
    g.res.t_embd_pooled = g.expand(g.cb(cur, "result_embd_pooled"))
