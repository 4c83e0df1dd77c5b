"""OLMo 2 and 3: only the results of blocks are normed, and queries and keys over all heads;
perhaps most layers see a window of tokens (models/olmo2.cpp)."""

from __future__ import annotations

from dataclasses import replace

from ggml_py.ops import reshape
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.geometry import ROPE_NEOX, Rope
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS, WindowedHParams
from llama_py.keys import Keys, number
from llama_py.models._decoder import Decoder, Layer
from llama_py.weights import Weights


class Olmo2HParams(WindowedHParams):
    """Positions within a window are not scaled, by a factor or YaRN, and turn as trained."""

    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    n_pattern = 4
    f_norm_rms_eps: float = number(RMS_EPS, least=0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.rope_freq_base_swa = self.rope_freq_base_train  # no graph reads the file's

    def rope(self, il: int) -> Rope | None:
        rope = super().rope(il)
        return replace(rope, yarn=False) if rope and self.swa_layers[il] else rope


class Olmo2(Decoder):
    arch = "olmo2"
    HParams = Olmo2HParams
    hp: Olmo2HParams
    layer_sum = "ffn_out"

    def layer(self, w: Weights, il: int) -> Layer:
        hp, shape = self.hp, self.hp.layers[il]
        norms = w.norm("attn_q_norm", shape.n_embd_q), w.norm("attn_k_norm", shape.n_embd_k_gqa)
        return Layer(
            None,
            NormedRows(w, hp, q_norm=norms[0], k_norm=norms[1]),
            None,
            FeedForward(w, hp.n_embd, shape.n_ff, scaled=False),
            attn_post_norm=w.norm("post_attention_norm", hp.n_embd),
            ffn_post_norm=w.norm("post_ffw_norm", hp.n_embd),
            post_ffn_il=(False, False),
        )


class NormedRows(Attention):
    """Queries and keys are normed before they are split into heads."""

    def project(self, g: GraphBuilder, cur: Tensor, il: int) -> QKV:
        """cur [n_embd, n_tokens] -> heads of a token joined"""
        q, k, v = self.qkv.rows(g, cur, il)
        return QKV(g.cb(q, "Qcur", il), g.cb(k, "Kcur", il), g.cb(v, "Vcur", il))

    def normed(self, g: GraphBuilder, qkv: QKV, il: int) -> QKV:
        rows = super().normed(g, qkv, il)
        sizes = self.qkv.heads
        q, k, v = (reshape(x, *n, g.n_tokens) for x, n in zip(rows, sizes, strict=True))
        return QKV(q, k, g.cb(v, "Vcur", il))
