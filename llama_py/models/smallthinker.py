"""SmallThinker: the router reads the layer's input before attention; most layers use
sliding-window attention, the others have no RoPE (models/smallthinker.cpp)."""

from __future__ import annotations

from ggml_py.ops import add
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import RELU
from llama_py.blocks.attention import Attention
from llama_py.blocks.experts import GATING_FUNCS, UNSCALED, Experts, Routing
from llama_py.gguf.keys import Keys, base, number, uint, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX, Rope
from llama_py.models.trunks.decoder import Decoder
from llama_py.models.trunks.scaled_windows import ScaledWindows
from llama_py.weights import Weights

N_WINDOW = 4096  # tokens; files only specify if windows are used
ROPE_PERIOD = 4  # the first layer of each period has no RoPE


class SmallThinkerHParams(ScaledWindows):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    n_pattern = ROPE_PERIOD
    dense_first = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    rope_freq_base_swa: float = base("rope.freq_base_swa", lambda hp: hp.rope_freq_base_train)
    expert_gating_func: int = uint("expert_gating_func", least=1, most=len(GATING_FUNCS))
    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length")

    def load(self, keys: Keys) -> None:
        self.n_swa = N_WINDOW if self.n_swa else 0
        super().load(keys)
        if self.n_expert == 0:
            raise keys.error("expert_count", "must be at least 1")

    def rope(self, il: int) -> Rope | None:
        """Return RoPE by the layer's number, whether or not it has a window; models of one period
        have RoPE in all layers."""
        everywhere = not self.n_swa or self.n_layer == ROPE_PERIOD
        return super().rope(il) if everywhere or il % ROPE_PERIOD else None


class ChosenExperts:
    """Experts for given logits of a router."""

    parts_keep = None

    def __init__(self, w: Weights, hp: SmallThinkerHParams) -> None:
        self.experts = Experts(
            w,
            hp,
            hp.n_ff_exp[w.il],
            experts=UNSCALED,
            routing=Routing(gating=GATING_FUNCS[hp.expert_gating_func - 1], router_scaled=False),
            act=RELU,
        )

    def __call__(self, g: GraphBuilder, cur: Tensor, logits: Tensor, il: int) -> Tensor:
        """Apply the experts that `logits` [n_expert, n] choose to cur [n_embd, n]. -> like cur"""
        return g.cb(self.experts(g, cur, il, logits), "ffn_out", il)


class SmallThinkerLayer:
    def __init__(self, w: Weights, hp: SmallThinkerHParams) -> None:
        self.attn_norm = w.norm("attn_norm", hp.n_embd)
        self.attention = Attention(w, hp)
        self.ffn_norm = w.norm("ffn_norm", hp.n_embd)
        self.feed_forward = ChosenExperts(w, hp)
        self.router = self.feed_forward.experts.router

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        """Apply the layer: [n_embd, n_tokens] -> same shape, or [n_embd, n_outputs] if last."""
        residual, logits = cur, g.cb(self.router(g, cur), "ffn_moe_logits", il)
        cur = self.attention(g, self.attn_norm(g, cur, "attn_norm", il), il)
        if last:
            cur, residual, logits = g.outputs(cur, residual, logits)
        ffn_inp = g.cb(add(cur, residual), "ffn_inp", il)
        cur = self.ffn_norm(g, ffn_inp, "ffn_norm", il)
        return add(self.feed_forward(g, cur, logits, il), ffn_inp)


class SmallThinker(Decoder):
    arch = "smallthinker"
    HParams = SmallThinkerHParams
    hp: SmallThinkerHParams
    sizes = {32: "4B", 52: "20B"}

    def layer(self, w: Weights, il: int) -> SmallThinkerLayer:
        return SmallThinkerLayer(w, self.hp)
