"""Decoders that score options of a text instead of predicting its next token."""

from __future__ import annotations

from abc import abstractmethod
from functools import reduce

from ggml_py.ops import add, concat, gelu_erf, pad, view
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import RELU
from llama_py.blocks.attention import QKV, Attention, Projections
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import Keys, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import HParams
from llama_py.hparams.layer_shape import Rope, Window
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.weights import Weights

N_KINDS = 3  # of questions: choice, score, yes or no


class DecisionDecoder(Decoder):
    """Embeddings are [1, n_outputs]: the scores of the options in order, then zeros. All are NaN if
    the marks do not fit."""

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        cur = self.output_norm(g, cur, "result_norm")
        if not g.n_outputs:
            g.res.t_embd = g.expand(cur)
            return
        scores, valid = self.decide(g, cur)
        scores = pad(scores, 0, g.n_outputs - scores.ne[1], 0, 0)
        g.res.t_embd = g.expand(g.cb(add(scores, valid), "result_decision"))

    @abstractmethod
    def decide(self, g: GraphBuilder, cur: Tensor) -> tuple[Tensor, Tensor]:
        """Score options by cur [n_embd, n_outputs]. -> [1, n_options], [1] to add to each"""

    def lm_head(self, nextn: int | None = None) -> None:
        return None


class ScoringHParams(HParams):
    """n_layer_decision  layers of a head that scores tokens, after the trunk; 0: no head"""

    n_layer_decision: int = uint("decision.block_count", 0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if not self.n_layer_decision:
            return
        if self.n_layer_decision >= self.n_layer_all or self.causal_attn:
            raise keys.error(
                "decision.block_count",
                f"must be less than block_count = {self.n_layer_all}, in a model without causal "
                "attention",
            )
        if keys.uint("/tokenizer.ggml.token_type_count", 0) != N_KINDS:
            raise keys.error("/tokenizer.ggml.token_type_count", f"must be {N_KINDS}")
        self.n_embd_out, self.cached, self.within_step = N_KINDS, False, 256

    @property
    def n_layer(self) -> int:
        return super().n_layer - self.n_layer_decision

    def rope(self, il: int) -> Rope | None:
        return super().rope(il) if il < self.n_layer else None

    def window(self, il: int) -> Window | None:
        return super().window(il) if il < self.n_layer else None


class UnplacedAttention(Attention):
    """Attention without RoPE."""

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        return qkv.q, qkv.k


class KindScorer:
    """Scores each token as the marker of an option, for a question of each kind: adds a row of the
    kind, and applies layers without positions and a classifier."""

    def __init__(
        self, w: Weights, hp: ScoringHParams, attention: type[Attention] = UnplacedAttention
    ) -> None:
        n, n_layer = hp.n_embd, hp.n_layer
        self.kinds = w.tensor("token_types.weight", n, N_KINDS)
        layers = range(n_layer, n_layer + hp.n_layer_decision)
        self.layers = {il: self._layer(w.layer(il), hp, attention) for il in layers}
        self.norm = w.norm("cls.norm", n, kind="layer", bias="needed")
        self.dense = w.linear("cls", n, n, bias="needed", scaled=False)
        self.out = w.linear("cls.output", n, 1, bias="needed", scaled=False)

    def _layer(self, w: Weights, hp: ScoringHParams, attention: type[Attention]) -> Layer:
        n, shape = hp.n_embd, hp.layers[w.il]
        qkv = Projections(w, n, shape, bias="needed", joined=True)
        return Layer(
            w.norm("attn_norm", n, kind="layer", bias="needed"),
            attention(w, hp, qkv=qkv, out_bias="needed", name="kqv_out"),
            w.norm("ffn_norm", n, kind="layer", bias="needed"),
            FeedForward(
                w, n, shape.n_ff, act=RELU, gated=False, bias="needed", scaled=False, name=""
            ),
        )

    def __call__(self, g: GraphBuilder, cur: Tensor) -> Tensor:
        """Score the output rows of cur [n_embd, n_tokens]. -> [N_KINDS, n_outputs]"""
        found: list[Tensor] = []
        for kind in range(N_KINDS):
            x = add(cur, view(self.kinds, cur.ne[:1], offset=kind * cur.ne[0]))
            for il, layer in self.layers.items():
                x = layer(g, x, il, il == max(self.layers))
            found.append(self.out(g, gelu_erf(self.dense(g, self.norm(g, x)))))
        return g.cb(reduce(lambda a, b: concat(a, b, 0), found), "decision_scores")
