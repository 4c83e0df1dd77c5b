"""gpt-oss: experts in every layer, sliding-window attention in every other layer, attention sinks
per head (models/openai-moe.cpp)."""

from __future__ import annotations

from dataclasses import replace

from ggml_py.tensor import Tensor
from llama_py.blocks.activation import SWIGLU_OAI
from llama_py.blocks.attention import Attention
from llama_py.blocks.experts import UNNORMED, Experts, ExpertSet, Routing
from llama_py.gguf.keys import Keys, base, number, uint, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX, Rope
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.scaled_windows import ScaledWindows
from llama_py.weights import Weights


class GptOssHParams(ScaledWindows):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    n_pattern = 2
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_swa: int = uint("attention.sliding_window", 0, least=1)
    rope_freq_base_swa: float = base("rope.freq_base_swa", lambda hp: hp.rope_freq_base_train)
    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length")
    yarn_rounded = True

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.rope_scaling_type == "yarn" and self.rope_freq_scale_train != 1:
            self.yarn_rounded = not self.differs("bounds of YaRN are rounded to whole pairs")
        if self.n_expert == 0:
            raise keys.error("expert_count", "must be at least 1")

    def rope(self, il: int) -> Rope | None:
        how = super().rope(il)
        return None if how is None else replace(how, rounded=self.yarn_rounded)


class GptOss(Decoder):
    arch = "gpt-oss"
    HParams = GptOssHParams
    sizes = {24: "20B", 36: "120B"}
    hp: GptOssHParams
    names = {"ffn_norm": "attn_post_norm"}

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd = self.hp, self.hp.n_embd
        attention = Attention(w, hp, out_bias="needed", name="attn_out")
        attention.sinks = w.tensor("attn_sinks.weight", hp.layers[il].n_head)
        return Layer(
            w.norm("attn_norm", n_embd),
            attention,
            w.norm("post_attention_norm", n_embd),
            Experts(
                w,
                hp,
                hp.n_ff_exp[il],
                experts=ExpertSet(biased="needed", scaled=False),
                routing=Routing(gating="softmax_weight", router_bias="needed"),
                weighing=UNNORMED,
                act=SWIGLU_OAI,
            ),
        )

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        return g.cparams.embeddings_nextn_masked

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        g.res.t_h_nextn = cur
        super().finish(g, cur, selected)
