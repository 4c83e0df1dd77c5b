"""DSpark's layers with DeepSeek-V4's design: four residual streams, experts, attention to a window
with one key per token, which is also its value (models/dflash.cpp:graph_dsv4)."""

from __future__ import annotations

from ggml_py.ops import reshape
from ggml_py.ops.hyper_connections import STREAMS
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import clamped_silu
from llama_py.blocks.compressed_attention import CompressedAttention, CompressedSizes
from llama_py.blocks.experts import (
    GATING_FUNCS,
    UNSCALED,
    Experts,
    Routing,
    SharedExperts,
    Weighing,
)
from llama_py.blocks.hyper_connections import HyperConnections
from llama_py.blocks.last_channels import plain_turn
from llama_py.gguf.keys import DeclaredKeys, Keys, flag, number, numbers, uint, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import HParams
from llama_py.hparams.layer_shape import ROPE_NORMAL, Rope
from llama_py.memory.kv_rot import rotate
from llama_py.models.trunks.streams import StreamLayer
from llama_py.weights import Weights


class StreamSizes(DeclaredKeys):
    """Hyperparameters that such layers have in addition; names like DeepSeek-V4's."""

    n_lora_q: int = uint("attention.q_lora_rank", least=1)
    n_swa: int = uint("attention.sliding_window", least=1)
    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length", least=1)
    n_expert_shared: int = uint("expert_shared_count", least=1)
    w_scale: float = number("expert_weights_scale")
    norm_w: bool = flag("expert_weights_norm")
    gating_func: int = uint("expert_gating_func")
    clamp_exp: tuple[float, ...] = numbers("swiglu_clamp_exp")
    clamp_shexp: tuple[float, ...] = numbers("swiglu_clamp_shexp", lambda s: list(s.clamp_exp))
    n_groups: int = uint("attention.output_group_count", least=1)
    n_lora_o: int = uint("attention.output_lora_rank", least=1)
    compress_ratios: tuple[int, ...] = uints("attention.compress_ratios", 0, longer=True)
    n_stream: int = uint("hyper_connection.count", least=STREAMS, most=STREAMS)
    n_iter: int = uint("hyper_connection.sinkhorn_iterations", least=1, most=1000)
    eps: float = number("hyper_connection.epsilon", least=0)

    def __init__(self, keys: Keys, hp: HParams) -> None:
        self.n_layer_all = hp.n_layer_all
        super().__init__(keys)
        known = GATING_FUNCS.index("sqrt_softplus") + 1
        if self.gating_func != known:
            raise keys.error("expert_gating_func", f"must be {known}")
        if hp.n_expert == 0:
            raise keys.error("expert_count", "must be at least 1")
        if any(self.compress_ratios):
            raise keys.error(
                "attention.compress_ratios", "items must each be 0 for a block draft model"
            )
        if any(n != 1 for n in hp.n_head_kv):
            raise keys.error("attention.head_count_kv", "must be 1")
        if any(n % self.n_groups or not n for n in hp.n_head):
            raise keys.error(
                "attention.output_group_count", f"must divide head_count = {hp.n_head[0]}"
            )
        if any(hp.rope_sections):
            raise keys.error(
                "rope.dimension_sections", "must be 0 for a model with several streams"
            )

    def rope(self, hp: HParams) -> Rope:
        """Return the RoPE of the last dimensions of heads."""
        offset = hp.n_embd_head_k - hp.n_rot
        return Rope(
            ROPE_NORMAL, hp.n_rot, hp.rope_freq_base_train, offset=offset, fixed=True, yarn=False
        )


class StreamBlockLayer:
    """Layer that also stores keys computed from the other model's hidden states."""

    def __init__(self, w: Weights, hp: HParams, s: StreamSizes) -> None:
        n_embd, il = hp.n_embd, w.il
        sizes = CompressedSizes(
            n_embd,
            hp.n_head[il],
            hp.n_embd_head_k,
            hp.n_rot,
            s.n_lora_q,
            s.n_groups,
            s.n_lora_o,
            hp.rope_freq_base_train,
        )
        self.attention = CompressedAttention(w, sizes, n_window=s.n_swa, drafts=True)
        experts = Experts(
            w,
            hp,
            s.n_ff_exp[il],
            experts=UNSCALED,
            routing=Routing(gating="sqrt_softplus", bias="needed", router_scaled=False),
            weighing=Weighing(normed=s.norm_w, scale=s.w_scale),
            act=clamped_silu(s.clamp_exp[il]),
        )
        shared = clamped_silu(s.clamp_shexp[il])
        n_shared = s.n_ff_exp[0] * s.n_expert_shared
        self.layer = StreamLayer(
            HyperConnections(w, n_embd, "hc_attn", n_iter=s.n_iter, eps=s.eps),
            w.norm("attn_norm", n_embd),
            self.attention,
            HyperConnections(w, n_embd, "hc_ffn", n_iter=s.n_iter, eps=s.eps),
            w.norm("ffn_norm", n_embd),
            SharedExperts(w, hp, experts, n_shared, scaled=False, act=shared),
            drafts=True,
        )

    def store(self, g: GraphBuilder, cur: Tensor, il: int, freqs: Tensor | None) -> None:
        """Store keys of the other model's hidden states. cur [n_embd, n_tokens]"""
        att = self.attention
        kv = att.kv_norm(g, att.wkv(g, cur), il=il)
        kv = plain_turn(g.cparams, att.sizes.n_rot)(
            reshape(kv, att.sizes.size, 1, g.n_tokens), g.inp_pos
        )
        g.cb(kv, "kv_injected", il)
        inp = g.inp_attn(il)
        kv = kv if inp.k_rot is None else rotate(kv, inp.k_rot)
        g.expand(inp.mctx.cpy_k(kv, inp.k_idxs, il))

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, freqs: Tensor | None) -> Tensor:
        """Apply the layer: [n_embd, 4, n_tokens] -> same shape."""
        return g.cb(self.layer(g, cur, il, False), "l_out", il)
