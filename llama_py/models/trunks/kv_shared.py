"""Later layers that attend to keys and values of earlier layers; values are also normed
(models/gemma3n.cpp, gemma4.cpp)."""

from __future__ import annotations

from ggml_py.ops import reshape
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention, Projections, attend_again
from llama_py.blocks.rope import rope
from llama_py.gguf.keys import Keys, divisor, number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import RMS_EPS, HParams, WindowedHParams
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.memory.specs import KVCacheSpec, MemorySpecs, SameAs
from llama_py.models.trunks.decoder import Decoder
from llama_py.weights import Weights


class SharedKVHParams(WindowedHParams):
    """n_layer_kv_from_start  number of layers with separate keys and values; later layers attend to
    the last one with a window, or the last one without"""

    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    attention_scale = 1.0
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    final_logit_softcap: float = divisor("final_logit_softcapping", 30.0)
    n_swa: int = uint("attention.sliding_window", least=1)
    n_layer_kv_from_start: int

    def load(self, keys: Keys) -> None:
        super().load(keys)
        n = self.n_layer_kv_from_start
        if n < 0:
            raise keys.error("attention.shared_kv_layers", f"must be at most {self.n_layer}")
        for il in range(n, self.n_layer):
            other = self.kv_layer(il)
            if other < 0 or self.swa_layers[other] != self.swa_layers[il]:
                raise keys.error(
                    "attention.sliding_window_pattern",
                    f"must give layer {n - 2} a window and layer {n - 1} none, because later "
                    "layers attend to their keys",
                )
            if self.n_head_kv[other] != self.n_head_kv[il]:
                raise keys.error(
                    "attention.head_count_kv", f"must be the same in layers {il} and {other}"
                )

    def kv_layer(self, il: int) -> int:
        """Return the layer with the keys and values of layer il's attention."""
        n = self.n_layer_kv_from_start
        return il if il < n else n - (2 if self.swa_layers[il] else 1)

    def is_attended_later(self, il: int) -> bool:
        """Return True if a later layer attends to keys and values of layer il."""
        return any(self.kv_layer(i) == il for i in range(il + 1, self.n_layer))


class NormedValues(Attention):
    """Attention with normed values.

    freqs  factors of RoPE's frequencies
    """

    parts_keep = KVCacheSpec

    def __init__(
        self,
        w: Weights,
        hp: HParams,
        q_norm: Norm,
        k_norm: Norm | None,
        qkv: Projections | None = None,
        freqs: Tensor | None = None,
    ) -> None:
        super().__init__(w, hp, qkv=qkv, norms=(q_norm, k_norm))
        self.freqs = freqs

    def normalize_heads(self, g: GraphBuilder, qkv: QKV, il: int) -> QKV:
        q, k, v = super().normalize_heads(g, qkv, il)
        return QKV(q, k, Norm()(g, v, "Vcur_normed", il))

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        q, k = (rope(g, x, il, self.freqs) for x in (qkv.q, qkv.k))
        return g.cb(q, "Qcur_pos", il), g.cb(k, "Kcur_pos", il)


class AttendedLater(NormedValues):
    """Attention with keys and values that later layers also use, so devices do not share it."""


class QueriesOnly(NormedValues):
    """Attention to an earlier layer's keys and values; the layer's own matrices are ignored."""

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Attend to an earlier layer's keys and values: [n_embd, n_tokens] -> same shape."""
        d, n_head = self.qkv.heads[0]
        q = reshape(g.cb(self.qkv.queries(g, cur, il), "Qcur", il), d, n_head, g.n_tokens)
        assert self.q_norm is not None
        q = rope(g, self.q_norm(g, q, "Qcur_normed", il), il, self.freqs)
        q = g.cb(q, "Qcur_pos", il)
        return self.output(g, attend_again(g, q, il, self.scores(g, il)))


def attention(hp: SharedKVHParams, il: int) -> type[NormedValues]:
    """Return the class of attention for layer il."""
    if hp.kv_layer(il) != il:
        return QueriesOnly
    return AttendedLater if hp.is_attended_later(il) else NormedValues


class SharedKVDecoder(Decoder):
    hp: SharedKVHParams

    def memory_spec(self, il: int) -> MemorySpecs:
        other = self.hp.kv_layer(il)
        return super().memory_spec(il) if other == il else (SameAs(other),)

    def embed(self, g: GraphBuilder) -> Tensor:
        return g.cb(g.scale_tokens(super().embed(g), self.hp.n_embd**0.5), "inp_scaled")
