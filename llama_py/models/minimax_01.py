"""MiniMax-Text-01: seven layers of linear attention with fixed decays per layer of attention,
experts in every layer; residuals add a block's normed input, not the value before the norm
(models/minimax-01.cpp).

llama.cpp writes the decays of sequences that share tokens with others out of bounds, and divides by
zero for a model of one layer; here each sequence has separate decays, and such a model is refused.
States of earlier tokens are stored for rollback, which llama.cpp does not do for this model.
"""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.ops import add, scale
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import Attention
from llama_py.blocks.experts import Experts, ExpertSet
from llama_py.blocks.lightning import LightningAttention
from llama_py.gguf.keys import Keys, number
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Block, Decoder
from llama_py.models.trunks.experts import RoutedHParams
from llama_py.models.trunks.hybrid import IntervalHParams
from llama_py.weights import Weights


class MiniMax01HParams(IntervalHParams, RoutedHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    usual_interval = 8
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    f_residual_scale: float = number("residual_scale")

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if not any(map(self.is_recr, range(self.n_layer))):
            return
        if self.n_layer < 2:
            raise keys.error(
                "block_count", "must be at least 2, because decay is divided by block_count - 1"
            )
        if len(set(self.n_head)) > 1:
            raise keys.error("attention.head_count", "must be the same in all layers")
        self.n_embd_s = self.n_embd_head_k**2 * self.n_head[0]


@dataclass(slots=True)
class NormedLayer:
    """x = norm(x), x = x * residual_scale + block(x), for attention and feed-forward."""

    attn_norm: Norm
    attention: Block
    ffn_norm: Norm
    feed_forward: Block
    residual_scale: float

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        """Apply the layer: [n_embd, n_tokens] -> same shape, or [n_embd, n_outputs] if last."""
        normed = self.attn_norm(g, cur, "attn_norm", il)
        cur = self.attention(g, normed, il)
        if last:  # only output rows remain
            cur, normed = g.outputs(cur, normed)
        normed = g.cb(scale(normed, self.residual_scale), "residual_scaled_attn", il)
        normed = self.ffn_norm(g, g.cb(add(cur, normed), "ffn_inp", il), "ffn_norm", il)
        cur = self.feed_forward(g, normed, il)
        normed = g.cb(scale(normed, self.residual_scale), "residual_scaled_ffn", il)
        return add(cur, normed)


class MiniMax01(Decoder):
    arch = "minimax-01"
    HParams = MiniMax01HParams
    hp: MiniMax01HParams
    sizes = {80: "456B"}
    layer_sum = "ffn_out"

    def layer(self, w: Weights, il: int) -> NormedLayer:
        hp = self.hp
        shape = hp.layers[il]
        return NormedLayer(
            w.norm("attn_norm", hp.n_embd),
            LightningAttention(w, hp.n_embd, shape.n_head, shape.n_embd_head_k, hp.n_layer)
            if shape.recurrent
            else Attention(w, hp),
            w.norm("ffn_norm", hp.n_embd),
            Experts(w, hp, shape.n_ff, experts=ExpertSet(gate="optional", scaled=False)),
            hp.f_residual_scale,
        )
