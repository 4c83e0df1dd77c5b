"""StableLM: RoPE on a part of each head; queries and keys may have a norm per head, and attention
and feed-forward may be parallel (models/stablelm.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import number
from llama_py.hparams import EPS, HParams
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import AnyLayer, Decoder, Layer, ParallelLayer
from llama_py.weights import Weights


class StableLmHParams(HParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    f_norm_eps: float = number(EPS, least=0)


class StableLm(Decoder):
    arch = "stablelm"
    HParams = StableLmHParams
    sizes = {24: "1B", 32: "3B", 40: "12B"}
    hp: StableLmHParams
    names = {"Qcur_normed": "Qcur", "Kcur_normed": "Kcur"}

    def declare_ends(self, w: Weights) -> None:
        hp = self.hp
        self.output_norm = w.norm("output_norm", hp.n_embd, kind="layer", bias="needed")
        self.output = w.output(hp.n_embd, hp.n_vocab)

    def layer(self, w: Weights, il: int) -> AnyLayer:
        n_embd, shape = self.hp.n_embd, self.hp.layers[il]
        d, norm = shape.n_embd_head_k, w.norm("attn_norm", n_embd, kind="layer", bias="needed")
        attention = Attention(
            w,
            self.hp,
            norms=(
                w.optional_norm("attn_q_norm", d, shape.n_head, kind="layer"),
                w.optional_norm("attn_k_norm", d, shape.n_head_kv, kind="layer"),
            ),
        )
        feed_forward = FeedForward(w, n_embd, shape.n_ff, scaled=False)
        ffn_norm = w.optional_norm("ffn_norm", n_embd, kind="layer", bias=True)
        if ffn_norm is None:
            return ParallelLayer(norm, attention, feed_forward, order="f(ax)", sum_name="ffn_inp")
        return Layer(norm, attention, ffn_norm, feed_forward)
