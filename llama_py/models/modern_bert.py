"""ModernBERT: most layers use a window around each token (models/modern-bert.cpp)."""

from __future__ import annotations

from ggml_py.ops import gelu
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import GEGLU, GEGLU_ERF, REGLU, SWIGLU
from llama_py.blocks.attention import Attention, Projections
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.pooling import Classifier
from llama_py.gguf.keys import Keys, number, text, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import EPS, WindowedHParams
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decision import KindScorer, ScoringHParams
from llama_py.models.trunks.decoder import Layer
from llama_py.models.trunks.encoder import Encoder
from llama_py.weights import Weights

# llama-model.cpp:llm_ffn_op_type_from_string; others are GELU
ACTIVATIONS = {"silu": SWIGLU, "swish": SWIGLU, "swiglu": SWIGLU, "reglu": REGLU}


class ModernBertHParams(ScoringHParams, WindowedHParams):
    rope_type = ROPE_NEOX
    cached = False
    required_heads = equal_heads = True
    n_pattern, dense_first = 3, True
    window_kind = "symmetric"
    f_norm_eps: float = number(EPS, least=0)
    hidden_act: str = text("hidden_activation", "gelu")
    pooling_type_cls: int = uint("classifier.pooling_type", 1)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.hidden_act == "relu":
            raise keys.error("hidden_activation", "must be gated: gelu, silu or reglu")
        # The build of llama.cpp that reads decision models changed GELU to its exact form.
        gelu = GEGLU_ERF if self.n_layer_decision else GEGLU
        self.act = ACTIVATIONS.get(self.hidden_act, gelu)


class ModernBert(Encoder):
    arch = "modern-bert"
    HParams = ModernBertHParams
    hp: ModernBertHParams
    sizes = {12: "47M", 22: "149M", 28: "395M"}
    result = "final_norm_out"

    def declare_ends(self, w: Weights) -> None:
        hp = self.hp
        self.tok_norm = self.norm(w, "token_embd_norm")
        self.output_norm = self.norm(w, "output_norm")
        self.scorer = KindScorer(w, hp) if hp.n_layer_decision else None
        if self.scorer is not None:
            return
        self.classifier = Classifier(
            w.optional_linear("cls", hp.n_embd, hp.n_embd, scaled=False),
            w.optional_linear("cls.output", hp.n_embd, hp.n_cls_out, bias=True, scaled=False),
            w.optional_norm("cls.norm", hp.n_embd, kind="layer"),
            activation=gelu,
        )

    def norm(self, w: Weights, stem: str) -> Norm:
        return w.norm(stem, self.hp.n_embd, kind="layer")

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        declare = w.norm if il else w.optional_norm
        qkv = Projections(w, hp.n_embd, hp.layers[il], bias=False)
        return Layer(
            declare("attn_norm", hp.n_embd, kind="layer"),
            Attention(w, hp, qkv=qkv, name="kqv_out"),
            self.norm(w, "ffn_norm"),
            FeedForward(w, hp.n_embd, hp.layers[il].n_ff, act=hp.act, scaled=False, name=""),
        )

    def embed(self, g: GraphBuilder) -> Tensor:
        return self.tok_norm(g, g.cb(super().embed(g), "inp_embd"), "inp_norm", 0)

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        return self.scorer is None

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        super().finish(g, cur, selected)
        if self.scorer is not None and g.res.t_embd is not None:
            g.res.t_embd = g.expand(self.scorer(g, g.res.t_embd))
