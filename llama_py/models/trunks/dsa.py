"""Latent attention to the tokens that an indexer chooses, of every layer or of an earlier one
(models/deepseek32.cpp, glm-dsa.cpp, dots3note.cpp, hy-v4.cpp)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from ggml_py.tensor import Tensor
from llama_py.blocks.indexer import Indexer, IndexerHeads
from llama_py.blocks.latent_attention import LatentAttention
from llama_py.gguf.keys import Keys, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.layer_shape import ROPE_NEOX, ROPE_NORMAL
from llama_py.memory.specs import Index, KVCacheSpec, MemorySpecs
from llama_py.models.trunks.latent import Latent, LatentHParams, kq_scale, turn
from llama_py.models.trunks.nextn import DRAFT_NAMES, EarlyDrafter
from llama_py.weights import Weights

DRAFT_NAMES_DSA = DRAFT_NAMES | {
    "qr": "mtp_q",
    "q": "mtp_q",
    "q_nope": "mtp_q_nope",
    "q_pe": "mtp_q_pe",
    "q_nope_perm": "mtp_q_nope_perm",
    "q_nope_absorbed": "mtp_q_nope_absorbed",
    "q_nope_absorbed_perm": "mtp_q_nope_absorbed_perm",
    "kv_cmpr_pe": "mtp_kv_cmpr_pe",
    "kv_cmpr": "mtp_kv_cmpr",
    "kv_cmpr_reshape": "mtp_kv_cmpr_reshape",
    "k_pe": "mtp_k_pe",
    "Qcur": "mtp_Qcur",
    "Kcur": "mtp_Kcur",
    "attn_out": "mtp_attn_out",
    "mtp_attn_residual": "mtp_ffn_inp",
    "mtp_attn_post_norm": "mtp_ffn_norm",
}
INDEXER_TENSORS = (
    "indexer.k_norm.weight",
    "indexer.k_norm.bias",
    "indexer.proj.weight",
    "indexer.attn_k.weight",
    "indexer.attn_q_b.weight",
)


class ChoosingHParams(LatentHParams):
    """indexer_n_head, indexer_head_size   of the indexer; indexer_top_k  tokens it chooses
    indexer_rope  RoPE type of its heads, from dimension indexer_offset on
    indexer_rotated   multiply by a Hadamard matrix after RoPE
    """

    rope_type = ROPE_NORMAL
    indexer_rope: ClassVar[int] = ROPE_NEOX
    indexer_rotated: ClassVar[bool] = True
    indexer_offset = 0
    f_norm_eps = 1e-6  # the indexer's
    n_lora_q: int = uint("attention.q_lora_rank", least=1)
    n_embd_head_k_mla: int = uint("attention.key_length_mla", least=1)
    n_embd_head_v_mla: int = uint("attention.value_length_mla", least=1)
    indexer_n_head: int = uint("attention.indexer.head_count", least=1)
    indexer_head_size: int = uint("attention.indexer.key_length", least=1)
    indexer_top_k: int = uint("attention.indexer.top_k", least=1)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.check_indexer(keys)

    def check_indexer(self, keys: Keys) -> None:
        size = self.indexer_head_size
        if size & (size - 1) or size < self.n_rot:
            raise keys.error(
                "attention.indexer.key_length",
                f"must be a power of two of at least rope.dimension_count = {self.n_rot}",
            )

    @property
    def indexer_heads(self) -> IndexerHeads:
        return IndexerHeads(
            self.indexer_n_head,
            self.indexer_head_size,
            self.indexer_top_k,
            self.indexer_rope,
            self.indexer_offset,
            self.indexer_rotated,
        )

    def indexer_layer(self, il: int) -> int:
        """Return the layer with the indexer that chooses for layer il, or -1."""
        return il if il < self.n_layer else -1

    def last_indexers(self, keys: Keys, types: tuple[int, ...]) -> tuple[int, ...]:
        """Return the last layer with an indexer for each layer; HParamsError if missing."""
        if not types[0]:
            raise keys.error(
                "attention.indexer.types",
                "must give layer 0 an indexer, because no earlier layer has one",
            )
        found: list[int] = []
        for il, own in enumerate(types):
            found.append(il if own else found[-1])
        return tuple(found)


class ChoosingAttention(LatentAttention):
    """Latent attention of the trunk to tokens that the layer's indexer chooses. Every device with
    heads runs the indexer; the draft layer attends to all tokens."""

    parts_keep: ClassVar[type | tuple[type, ...]] = (KVCacheSpec, Index)

    def __init__(
        self,
        w: Weights,
        hp: ChoosingHParams,
        *,
        kq_scale: Callable[[GraphBuilder], float] | None = kq_scale,
        name: str = "attn_out",
        scaled: bool = True,
    ) -> None:
        output = w.linear("attn_output", hp.n_embd_values(w.il), hp.n_embd, scaled=scaled)
        super().__init__(
            w,
            hp.latent(w.il),
            absorbed=True,
            output=output,
            turn=turn,
            kq_scale=kq_scale,
            name=name,
        )
        self.declare_indexer(w, hp)

    def declare_indexer(self, w: Weights, hp: ChoosingHParams) -> None:
        self.indexer = Indexer(w, hp.n_embd, hp.n_lora_q, hp.indexer_heads, self.few_names)

    def choose(self, g: GraphBuilder, cur: Tensor, small: Tensor, il: int) -> Tensor | None:
        return None if il >= g.hp.n_layer else self.indexer(g, cur, small, il)


class SharingAttention(ChoosingAttention):
    """Latent attention with an indexer that also chooses for later layers; devices do not share it.

    chooser  the layer with the indexer, or -1
    """

    def declare_indexer(self, w: Weights, hp: ChoosingHParams) -> None:
        self.chooser = hp.indexer_layer(w.il)
        if self.chooser == w.il:
            super().declare_indexer(w, hp)
        else:  # files may have an indexer in every layer
            w.skip(*INDEXER_TENSORS)

    def choose(self, g: GraphBuilder, cur: Tensor, small: Tensor, il: int) -> Tensor | None:
        if self.chooser < 0:
            return None
        return g.shared(f"top_k-{self.chooser}", lambda: self.indexer(g, cur, small, il))


class Choosing(Latent):
    """Layers with an indexer keep its keys too."""

    hp: ChoosingHParams

    def memory_spec(self, il: int) -> MemorySpecs:
        kept, hp = super().memory_spec(il), self.hp
        if hp.indexer_layer(il) != il:
            return kept
        rope = hp.rope(il)
        assert rope is not None
        rope = replace(rope, type=hp.indexer_rope, offset=hp.indexer_offset)
        return *kept, Index(hp.indexer_head_size, rope, rotated=hp.indexer_rotated)


class ChoosingDrafter(EarlyDrafter, Choosing):
    """Decoder with NextN layers, which attend to all tokens."""

    names = {"attn_out": ""}
    draft_names = DRAFT_NAMES_DSA
