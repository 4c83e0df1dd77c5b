"""DeepSeek-V3.2: latent attention to the tokens that an indexer chooses, experts after the first
layers, a NextN layer that drafts (models/deepseek32.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.blocks.indexer import Indexer
from llama_py.blocks.latent_attention import LatentAttention
from llama_py.geometry import ROPE_NEOX, ROPE_NORMAL, Rope
from llama_py.graph.builder import GraphBuilder
from llama_py.keys import Keys, uint
from llama_py.memory.kept import Index, Kept, KeysValues
from llama_py.models._decoder import Layer
from llama_py.models._latent import Latent, YarnLatentHParams, kq_scale, turn
from llama_py.models._nextn import DRAFT_NAMES, DraftingDecoder
from llama_py.weights import Weights

NAMES = {"attn_out": ""}
DRAFT_NAMES_32 = DRAFT_NAMES | {
    "qr": "mtp_q", "q": "mtp_q", "q_nope": "mtp_q_nope", "q_pe": "mtp_q_pe",
    "q_nope_perm": "mtp_q_nope_perm", "q_nope_absorbed": "mtp_q_nope_absorbed",
    "q_nope_absorbed_perm": "mtp_q_nope_absorbed_perm", "kv_cmpr_pe": "mtp_kv_cmpr_pe",
    "kv_cmpr": "mtp_kv_cmpr", "kv_cmpr_reshape": "mtp_kv_cmpr_reshape", "k_pe": "mtp_k_pe",
    "Qcur": "mtp_Qcur", "Kcur": "mtp_Kcur", "attn_out": "mtp_attn_out",
    "mtp_attn_residual": "mtp_ffn_inp", "mtp_attn_post_norm": "mtp_ffn_norm",
}  # fmt: skip


class Deepseek32HParams(YarnLatentHParams):
    """indexer_n_head, indexer_head_size   of the indexer; indexer_top_k  tokens it chooses"""

    rope_type = ROPE_NORMAL
    f_norm_eps = 1e-6  # of the indexer's norm
    n_lora_q: int = uint("attention.q_lora_rank", least=1)
    n_embd_head_k_mla: int = uint("attention.key_length_mla", least=1)
    n_embd_head_v_mla: int = uint("attention.value_length_mla", least=1)
    indexer_n_head: int = uint("attention.indexer.head_count", least=1)
    indexer_head_size: int = uint("attention.indexer.key_length", least=1)
    indexer_top_k: int = uint("attention.indexer.top_k", least=1)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        size = self.indexer_head_size
        if size & (size - 1) or size < self.n_rot:
            raise keys.error(
                "attention.indexer.key_length",
                f"it must be a power of two, and not below rope.dimension_count = {self.n_rot}",
            )


class ChoosingAttention(LatentAttention):
    """Of the trunk, to what the indexer chooses, which every device that has heads does for itself;
    the layer that drafts attends to all."""

    parts_keep = (KeysValues, Index)

    def __init__(self, w: Weights, hp: Deepseek32HParams) -> None:
        output = w.linear("attn_output", hp.n_embd_values(w.il), hp.n_embd)
        super().__init__(
            w, hp.latent(w.il), absorbed=True, output=output, turn=turn, kq_scale=kq_scale,
            split_queries=False, name="attn_out",
        )  # fmt: skip
        self.indexer = Indexer(
            w, n_embd=hp.n_embd, n_lora_q=hp.n_lora_q, n_head=hp.indexer_n_head,
            size=hp.indexer_head_size, n_chosen=hp.indexer_top_k, rope_type=ROPE_NEOX,
        )  # fmt: skip

    def choose(self, g: GraphBuilder, cur: Tensor, small: Tensor, il: int) -> Tensor | None:
        return None if il >= g.hp.n_layer else self.indexer(g, cur, small, il)


class Deepseek32(DraftingDecoder, Latent):
    arch = "deepseek32"
    HParams = Deepseek32HParams
    hp: Deepseek32HParams
    names = NAMES
    draft_names = DRAFT_NAMES_32

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            ChoosingAttention(w, hp),
            w.norm("ffn_norm", hp.n_embd),
            self.feed_forward(w, il, need_shexp=True, scaled=True),
        )

    def keeps(self, il: int) -> Kept:
        kept, hp = super().keeps(il), self.hp
        if il >= hp.n_layer:
            return kept
        rope = hp.rope(il)
        assert rope is not None
        neox = Rope(ROPE_NEOX, rope.n_rot, rope.freq_base, rope.freq_scale)
        return *kept, Index(hp.indexer_head_size, neox)

    def selects_early(self, g: GraphBuilder) -> bool:
        return not g.cparams.embeddings_nextn or g.cparams.embeddings_nextn_masked
