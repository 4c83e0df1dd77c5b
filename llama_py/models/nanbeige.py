"""Nanbeige: all layers may be run several times, each time with separate keys and values
(models/nanbeige.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.blocks.attention import Attention, Projections
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.rope import RopeFactors
from llama_py.gguf.keys import Keys, flag, number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams import MAX_LAYERS, RMS_EPS, HParams
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.decoder import Layer, LongDecoder
from llama_py.weights import Weights


class NanbeigeHParams(HParams):
    """Layers are counted once for each loop.

    n_layer_phys   number of layers with weights
    """

    rope_type = ROPE_NORMAL
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_loops: int = uint("num_loops", 1, least=1)
    skip_loop_final_norm: bool = flag("skip_loop_final_norm", False)

    def load(self, keys: Keys) -> None:
        self.n_layer_phys = self.n_layer_all
        self.n_layer_all *= self.n_loops
        if self.n_layer_all > MAX_LAYERS:
            most = MAX_LAYERS // self.n_layer_phys
            raise keys.error("num_loops", f"must be at most {most} for {self.n_layer_phys} layers")
        for name in ("n_head", "n_head_kv", "n_ff", "n_expert_used"):
            setattr(self, name, getattr(self, name) * self.n_loops)


class LoopedAttention(Attention):
    """Each loop has separate keys, so devices do not share the layer.

    first  True for the first loop
    """

    def __init__(self, w: Weights, hp: HParams, first: bool, factors: RopeFactors) -> None:
        self.out_scaled = first
        qkv = Projections(w, hp.n_embd, hp.layers[w.il], scaled=first)
        super().__init__(w, hp, qkv=qkv, factors=factors, name="attn_out")


class Nanbeige(LongDecoder):
    arch = "nanbeige"
    HParams = NanbeigeHParams
    hp: NanbeigeHParams
    layer_sum = "ffn_out"

    def declare_trunk(self, w: Weights) -> None:
        n = self.hp.n_layer_phys
        self.layers = [self.layer(w.layer(il % n), il) for il in range(self.hp.n_layer)]

    def layer(self, w: Weights, il: int) -> Layer:
        """Declare a layer; like in llama.cpp, only the first loop uses the scales of matrices."""
        hp, n_embd, shape = self.hp, self.hp.n_embd, self.hp.layers[il]
        first = il < hp.n_layer_phys
        return Layer(
            w.norm("attn_norm", n_embd),
            LoopedAttention(w, hp, first, self.factors),
            w.norm("ffn_norm", n_embd),
            FeedForward(w, n_embd, shape.n_ff, scaled=first),
        )

    def after_layer(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        n, hp = il + 1, self.hp
        if n % hp.n_layer_phys or n == hp.n_layer or hp.skip_loop_final_norm:
            return cur
        return self.output_norm(g, cur, "loop_norm", il)
