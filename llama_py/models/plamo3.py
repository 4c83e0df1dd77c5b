"""PLaMo 3: norms before and after blocks; most layers may use sliding-window attention
(models/plamo3.cpp)."""

from __future__ import annotations

from llama_py.blocks.activation import SWIGLU
from llama_py.blocks.attention import Attention, Projections, head_norms
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import number
from llama_py.graph.linear import Norm
from llama_py.hparams import RMS_EPS, WindowedHParams
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.weights import Weights


class Plamo3HParams(WindowedHParams):
    rope_type = ROPE_NEOX
    required_heads = True
    n_pattern = 8
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Plamo3(Decoder):
    arch = "plamo3"
    HParams = Plamo3HParams
    hp: Plamo3HParams
    sizes = {24: "2B"}
    layer_sum = "ffn_residual"
    names = {
        "attn_norm": "wqkv",
        "wqkv": "",
        "Qcur_normed": "attn_q_norm",
        "Kcur_normed": "attn_k_norm",
        "ffn_inp": "attn_residual",
        "result_norm": "",
        "result_output": "",
    }

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd, shape = self.hp, self.hp.n_embd, self.hp.layers[il]
        return Layer(
            w.norm("attn_norm", n_embd),
            Attention(
                w,
                hp,
                qkv=Projections(w, n_embd, shape, bias=False, scaled=False, joined=True),
                norms=head_norms(w, hp),
                turned=("", ""),
                name="attn_out",
            ),
            w.norm("ffn_norm", n_embd),
            FeedForward(w, n_embd, shape.n_ff, act=SWIGLU, scaled=False),
            attn_post_norm=Norm(w.tensor("post_attention_norm", n_embd)),
            ffn_post_norm=Norm(w.tensor("post_ffw_norm", n_embd)),
            post_ffn_il=(True, True),
        )
