"""Llama 4: most layers use chunked attention, the others scale queries by position instead of RoPE;
a few experts plus a shared one (models/llama4.cpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggml_py.ops import add
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention
from llama_py.blocks.experts import UNSCALED, Experts, Routing, SharedExperts, Weighing
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.functions import scale_by_position
from llama_py.gguf.keys import Keys, base, number, uint, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NORMAL, Rope
from llama_py.hparams.shard import Shard
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.decoder import Block, Layer, LongDecoder
from llama_py.models.trunks.scaled_windows import ScaledWindows
from llama_py.weights import Weights

if TYPE_CHECKING:
    from typing_extensions import Self

N_CHUNK = 8192  # tokens of a chunk, and of a step of the temperature; not in files
N_EXPERT_MAVERICK = 128  # the larger model does not norm queries and keys
ROPE_PERIOD = 4  # the last layer of each period has no RoPE


class Llama4HParams(ScaledWindows):
    """sliding_window = 0 disables chunks and layers without RoPE; otherwise it must be N_CHUNK."""

    rope_type = ROPE_NORMAL
    required_heads = equal_heads = whole_rope = True
    n_pattern = 4
    window_kind = "chunked"
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_swa: int = uint("attention.sliding_window", N_CHUNK)
    rope_freq_base_swa: float = base("rope.freq_base_swa", lambda hp: hp.rope_freq_base_train)
    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length")
    n_moe_layer_step: int = uint("interleave_moe_layer_step")

    def load(self, keys: Keys) -> None:
        self.n_swa = N_CHUNK if self.n_swa else 0
        super().load(keys)
        self.n_ff_beside = self.n_ff_exp  # shared expert
        if self.n_expert == 0 and any(map(self.is_moe, range(self.n_layer))):
            raise keys.error("expert_count", "must be at least 1")

    def shared(self, share: Shard) -> Self:
        hp = super().shared(share)
        hp.n_ff_beside = tuple(
            share.count_own(n, 1, "ffn_down_shexp", il=il) if n else 0
            for il, n in enumerate(self.n_ff_beside)
        )
        return hp

    def is_moe(self, il: int) -> bool:
        """Return True if layer il has experts."""
        return self.n_moe_layer_step > 0 and (il + 1) % self.n_moe_layer_step == 0

    def rope(self, il: int) -> Rope | None:
        return None if self.n_swa and (il + 1) % ROPE_PERIOD == 0 else super().rope(il)


class Llama4(LongDecoder):
    """Models without windows or without experts are right here; llama.cpp refuses them."""

    arch = "llama4"
    HParams = Llama4HParams
    hp: Llama4HParams
    layer_sum = "ffn_out"
    names = {"ffn_shexp": "ffn_moe_shexp"}

    @classmethod
    def size_name(cls, hp: AnyHParams) -> str:
        if not hp.n_expert:
            return {2048: "140M", 4096: "360M", 6144: "950M"}.get(hp.n_embd, "?B")
        return {16: "17Bx16E (Scout)", 128: "17Bx128E (Maverick)"}.get(hp.n_expert, "?B")

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd, n_ff_exp = self.hp, self.hp.n_embd, self.hp.n_ff_exp[il]
        norm, ffn_norm = w.norm("attn_norm", n_embd), w.norm("ffn_norm", n_embd)
        attention = Llama4Attention(w, hp, factors=self.factors, name="attn_out")
        if not hp.is_moe(il):
            feed_forward = FeedForward(w, n_embd, hp.layers[il].n_ff, scaled=False)
            return Layer(norm, attention, ffn_norm, feed_forward)
        experts = Experts(
            w,
            hp,
            n_ff_exp,
            experts=UNSCALED,
            routing=Routing(gating="sigmoid", choose_by="logits", router_scaled=False),
            weighing=Weighing(normed=False, before=True),
        )
        shared = SharedExperts(
            w, hp, experts, hp.n_ff_beside[il], scaled=False, name="ffn_moe_out_merged"
        )
        return ExpertLayer(norm, attention, ffn_norm, shared)


class Llama4Attention(Attention):
    """Queries and keys are normed after RoPE; without it, queries are scaled by position."""

    parts_keep = KVCacheSpec

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        if g.hp.layers[il].rope is None:
            return g.cb(scale_by_position(g, qkv.q, N_CHUNK, 0.1, 1.0), "Qcur", il), qkv.k
        q, k = super().place(g, qkv, il)
        if g.hp.n_expert != N_EXPERT_MAVERICK:
            norm = Norm()
            q, k = norm(g, q, "Qcur_normed", il), norm(g, k, "Kcur_normed", il)
        return q, k


class ExpertLayer(Layer):
    """Layer that names attention's result like a norm, and omits the name of the experts' input."""

    def _feed_forward(
        self, g: GraphBuilder, feed_forward: Block, ffn_inp: Tensor, il: int
    ) -> Tensor:
        attended = ffn_inp.src[0]
        assert attended is not None and self.ffn_norm is not None
        g.cb(attended, "ffn_norm", il)
        return add(feed_forward(g, self.ffn_norm(g, ffn_inp, il=il), il), ffn_inp)
