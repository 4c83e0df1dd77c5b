"""Gemma 4: most layers use sliding-window attention, the others have larger heads; optionally a
separate input for each layer, later layers that attend to keys and values of earlier layers, and
experts in parallel with the feed-forward (models/gemma4.cpp)."""

from __future__ import annotations

from ggml_py.ops import add, mul, scale
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import GELU
from llama_py.blocks.altup import stream
from llama_py.blocks.attention import RowProjections
from llama_py.blocks.experts import Experts, ExpertSet
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.functions import inv_sqrt
from llama_py.blocks.per_layer import LayerGate, PerLayerInputs
from llama_py.gguf.keys import Keys, uint, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Linear, Norm
from llama_py.hparams.cparams import CParams
from llama_py.models.trunks.kv_shared import (
    NormedValues,
    SharedKVDecoder,
    SharedKVHParams,
    attention,
)
from llama_py.weights import Weights


class Gemma4HParams(SharedKVHParams):
    """n_embd_per_layer  dimensions of each layer's separate input; 0: no input"""

    non_causal_type = "swa_only"
    n_layer_kv_shared: int = uint("attention.shared_kv_layers", 0, counts="last")
    n_embd_head_k_swa: int = uint("attention.key_length_swa", least=1)
    n_embd_head_v_swa: int = uint("attention.value_length_swa", least=1)
    n_embd_per_layer: int = uint("embedding_length_per_layer_input")
    n_ff_exp: tuple[int, ...] = uints("expert_feed_forward_length", 0)

    def load(self, keys: Keys) -> None:
        self.n_layer_kv_from_start = self.n_layer_all - self.n_layer_kv_shared
        pattern = "attention.sliding_window_pattern"
        if not keys.is_array(pattern):
            raise keys.error(pattern, "must be an array")
        super().load(keys)


class RoutedExperts:
    """Experts with another input for the router."""

    parts_keep = None

    def __init__(self, w: Weights, hp: Gemma4HParams) -> None:
        router = Linear(w.tensor("ffn_gate_inp.weight", hp.n_embd, hp.n_expert))
        self.scale = w.tensor("ffn_gate_inp.scale", hp.n_embd)
        self.experts = Experts(
            w, hp, hp.n_ff_exp[w.il], experts=ExpertSet(merged=True), router=router, act=GELU
        )

    def __call__(self, g: GraphBuilder, cur: Tensor, seen: Tensor, il: int) -> Tensor:
        """Apply experts to cur [n_embd, n]; the router reads `seen` [n_embd, n]. -> like cur"""
        seen = mul(scale(Norm()(g, seen), inv_sqrt(seen.ne[0])), self.scale)
        return self.experts(g, cur, il, self.experts.route(g, seen, il))


class ParallelExperts:
    """Experts in parallel with the feed-forward; both results are normed, and added."""

    def __init__(self, w: Weights, hp: Gemma4HParams) -> None:
        self.pre_norm_2 = w.norm("pre_ffw_norm_2", hp.n_embd)
        self.post_norm_1 = w.norm("post_ffw_norm_1", hp.n_embd)
        self.post_norm_2 = w.norm("post_ffw_norm_2", hp.n_embd)
        self.experts = RoutedExperts(w, hp)

    def add_experts(self, g: GraphBuilder, mlp: Tensor, attn_out: Tensor, il: int) -> Tensor:
        """Add the experts' result to mlp [n_embd, n]; attn_out [n_embd, n] is their input."""
        mlp = self.post_norm_1(g, mlp, "ffn_mlp", il)
        moe = self.experts(g, self.pre_norm_2(g, attn_out, "ffn_norm_2", il), attn_out, il)
        moe = self.post_norm_2(g, moe, "ffn_moe", il)
        return g.cb(add(mlp, moe), "ffn_moe_combined", il)


class Gemma4Layer:
    """Attention and feed-forward, each normed before and after, and the layer's own input.

    beside     experts in parallel with the feed-forward
    gate       the layer's own input
    out_scale  F32 [1], a factor of the result
    """

    def __init__(
        self,
        w: Weights,
        hp: SharedKVHParams,
        freqs: Tensor | None = None,
        *,
        beside: ParallelExperts | None = None,
        gate: LayerGate | None = None,
        out_scale: Tensor | None = None,
    ) -> None:
        n_embd, shape = hp.n_embd, hp.layers[w.il]
        self.attn_norm = w.norm("attn_norm", n_embd)
        self.attention = _attention(w, hp, freqs)
        self.attn_post_norm = w.norm("post_attention_norm", n_embd)
        self.ffn_norm = w.norm("ffn_norm", n_embd)
        self.feed_forward = FeedForward(w, n_embd, shape.n_ff, act=GELU, name="")
        self.ffn_post_norm = w.norm("post_ffw_norm", n_embd)
        self.beside, self.gate, self.out_scale = beside, gate, out_scale

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        """Apply the layer: [n_embd, n_tokens] -> same shape, or [n_embd, n_outputs] if last."""
        residual = cur
        cur = self.attention(g, self.attn_norm(g, cur, "attn_norm", il), il)
        if last:
            cur, residual = g.outputs(cur, residual)
        cur = self.attn_post_norm(g, cur, "attn_post_norm", il)
        attn_out = g.cb(add(cur, residual), "attn_out", il)
        cur = g.cb(self.ffn_post_norm(g, self._feed_forward(g, attn_out, il)), "ffn_post_norm", il)
        cur = add(cur, attn_out)
        if self.gate is not None:
            cur = add(g.cb(cur, "pe_in", il), self._layer_input(g, cur, il, last))
        if self.out_scale is not None:
            cur = g.cb(mul(cur, self.out_scale), "out_scaled", il)
        return cur

    def _feed_forward(self, g: GraphBuilder, attn_out: Tensor, il: int) -> Tensor:
        name = "ffn_norm" if self.beside is None else "ffn_norm_1"
        cur = self.feed_forward(g, self.ffn_norm(g, attn_out, name, il), il)
        if self.beside is None:
            return g.cb(cur, "ffn_out", il)
        return self.beside.add_experts(g, cur, attn_out, il)

    def _layer_input(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        """Gate the layer's own input by cur. -> like cur"""
        assert self.gate is not None
        mine = stream(g.get_shared("inp_per_layer"), il)
        return self.gate(g, cur, g.outputs(mine)[0] if last else mine, il)


def _attention(w: Weights, hp: SharedKVHParams, freqs: Tensor | None) -> NormedValues:
    """Declare the attention of the layer of w."""
    shape, own = hp.layers[w.il], hp.kv_layer(w.il) == w.il
    qkv = RowProjections(w, hp.n_embd, shape, bias=False, needed="qk" if own else "q")
    k_norm: Norm | None = None
    if own:
        k_norm = w.norm("attn_k_norm", shape.n_embd_head_k)
    else:
        w.skip("attn_k_norm.weight")
    q_norm = w.norm("attn_q_norm", shape.n_embd_head_k)
    return attention(hp, w.il)(w, hp, q_norm, k_norm, qkv, freqs)


class Gemma4(SharedKVDecoder):
    arch = "gemma4"
    HParams = Gemma4HParams
    hp: Gemma4HParams
    sizes = {30: "26B.A4B", 35: "E2B", 42: "E4B", 60: "31B"}
    names = {
        "first_prediction_gated": "",
        "first_prediction_scaled": "",
        "first_prediction_out": "per_layer_embd_out",
    }

    def declare_ends(self, w: Weights) -> None:
        super().declare_ends(w)
        hp = self.hp
        self.per_layer = PerLayerInputs(w, hp, hp.n_embd_per_layer) if hp.n_embd_per_layer else None
        self.freqs: Tensor | None = None
        if not all(hp.swa_layers):
            self.freqs = w.tensor("rope_freqs.weight", hp.n_embd_head_k // 2)

    def layer(self, w: Weights, il: int) -> Gemma4Layer:
        hp = self.hp
        n, experts = hp.n_embd_per_layer, w.has("ffn_gate_inp.weight")
        return Gemma4Layer(
            w,
            hp,
            self._freqs(il),
            beside=ParallelExperts(w, hp) if experts else None,
            gate=LayerGate(w, hp.n_embd, n) if n else None,
            out_scale=w.optional_tensor("layer_output_scale.weight", 1),
        )

    def _freqs(self, il: int) -> Tensor | None:
        return None if self.hp.swa_layers[il] else self.freqs

    def rope_factors(self, cparams: CParams, il: int) -> Tensor | None:
        return self._freqs(il)

    def embed(self, g: GraphBuilder) -> Tensor:
        cur = super().embed(g)
        if (per_layer := self.per_layer) is not None:
            g.shared("inp_per_layer", lambda: per_layer(g, cur))
        return cur

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        return g.cparams.embeddings_nextn_masked

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        # An assistant drafts from the normed state.
        cur = self.output_norm(g, cur, "h_nextn")
        g.res.t_h_nextn = cur
        if not selected:
            cur = g.outputs(cur)[0]
        g.res.t_embd = g.cb(cur, "result_norm")
        self.head(g, cur)
