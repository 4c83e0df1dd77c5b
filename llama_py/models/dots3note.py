"""dots3-note: latent attention with a gate per head, in some layers to tokens that an indexer
chooses, in others with a sliding window and different sizes; experts after the first layers
(models/dots3note.cpp)."""

from __future__ import annotations

from ggml_py.ops import mul, reshape, sigmoid
from ggml_py.tensor import Tensor
from llama_py.blocks.latent_attention import LatentSizes
from llama_py.gguf.keys import Keys, base, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.decoder import Layer
from llama_py.models.trunks.dsa import INDEXER_TENSORS, Choosing, ChoosingAttention, ChoosingHParams
from llama_py.models.trunks.scaled_windows import ScaledWindows
from llama_py.weights import Weights


class Dots3NoteHParams(ChoosingHParams, ScaledWindows):
    """..._swa   sizes of layers with a window"""

    n_pattern = 0  # files have a flag of each layer
    n_layer_dense_lead: int = uint("leading_dense_block_count", counts="first")
    n_swa: int = uint("attention.sliding_window", least=1)
    rope_freq_base_swa: float = base("rope.freq_base_swa")
    n_lora_kv_swa: int = uint("attention.kv_lora_rank_swa", least=1)
    n_embd_head_k_mla_swa: int = uint("attention.key_length_mla_swa", least=1)
    n_embd_head_v_mla_swa: int = uint("attention.value_length_mla_swa", least=1)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.n_rot >= self.n_embd_head_k_mla_swa:
            raise keys.error(
                "attention.key_length_mla_swa", f"must be above rope.dimension_count {self.n_rot}"
            )
        types = _each_layer(keys, "attention.indexer.types", self.n_layer)
        for il, (swa, full) in enumerate(zip(self.swa_layers, types, strict=False)):
            if not (swa or full):
                raise keys.error(
                    "attention.indexer.types",
                    f"must give layer {il} an indexer, because it has no window",
                )

    def _pattern(self, keys: Keys) -> tuple[bool, ...]:
        trunk = _each_layer(keys, "attention.sliding_window_pattern", self.n_layer)
        return trunk + (True,) * self.n_layer_nextn

    def latent(self, il: int) -> LatentSizes:
        if not self.swa_layers[il]:
            return super().latent(il)
        return LatentSizes(
            self.n_embd,
            self.layers[il].n_head,
            self.n_lora_kv_swa,
            self.n_lora_q,
            self.n_embd_head_k_mla_swa,
            self.n_embd_head_v_mla_swa,
            self.n_rot,
        )

    def indexer_layer(self, il: int) -> int:
        return -1 if self.swa_layers[il] else il


def _each_layer(keys: Keys, key: str, n_layer: int) -> tuple[bool, ...]:
    """Read a flag per layer of the trunk; the file may have more."""
    return keys.flags(key, max(n_layer, keys.count(key)))[:n_layer]


class Dots3NoteAttention(ChoosingAttention):
    """Results of heads are multiplied by a gate each."""

    def __init__(self, w: Weights, hp: Dots3NoteHParams) -> None:
        self.k_norm = w.norm("attn_k_norm", hp.n_rot)
        super().__init__(w, hp, kq_scale=None, name="attn_output")
        self.gate = w.linear("attn_gate", hp.n_embd, hp.layers[w.il].n_head, scaled=False)

    def shared_key(self, g: GraphBuilder, k_pe: Tensor, il: int) -> Tensor:
        return self.k_norm(g, k_pe, "k_pe", il)

    def gate_heads(self, g: GraphBuilder, attended: Tensor, cur: Tensor, il: int) -> Tensor:
        n = self.n
        g.cb(attended, "attn_out", il)
        gate = g.cb(self.gate(g, cur), "attn_gate", il)
        gate = g.cb(sigmoid(gate), "attn_gate_sigmoid", il)
        x = reshape(attended, n.d_v, n.n_head, g.n_tokens)
        x = g.cb(mul(x, reshape(gate, 1, n.n_head, g.n_tokens)), "attn_gated", il)
        return reshape(x, n.d_v * n.n_head, g.n_tokens)


class WindowAttention(Dots3NoteAttention):
    """Latent attention to all tokens within the window."""

    parts_keep = KVCacheSpec

    def declare_indexer(self, w: Weights, hp: ChoosingHParams) -> None:
        w.skip(*INDEXER_TENSORS)

    def choose(self, g: GraphBuilder, cur: Tensor, small: Tensor, il: int) -> Tensor | None:
        return None


class Dots3Note(Choosing):
    arch = "dots3note"
    sizes = {46: "288B.A19B"}
    HParams = Dots3NoteHParams
    hp: Dots3NoteHParams

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            (WindowAttention if hp.swa_layers[il] else Dots3NoteAttention)(w, hp),
            w.norm("ffn_norm", hp.n_embd),
            self.feed_forward(w, il, need_shexp=True, probs_bias="needed", scaled=True),
        )
