"""MiniMax-M3: dense layers with full attention, then layers with experts that attend to chosen
blocks of positions (models/minimax-m3.cpp)."""

from __future__ import annotations

from llama_py.blocks.activation import SWIGLU_OAI
from llama_py.blocks.attention import Attention, head_norms
from llama_py.blocks.block_sparse import BlockAttention, BlockSizes
from llama_py.gguf.keys import Keys, number, uint
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.memory.specs import Index, MemorySpecs
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.experts import LeadingDenseHParams, expert_layer
from llama_py.weights import Weights


class MinimaxM3HParams(LeadingDenseHParams):
    """indexer_...   sizes of the index keys that choose blocks; number and size of blocks"""

    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    indexer_n_head: int = uint("attention.indexer.head_count", least=1)
    indexer_head_size: int = uint("attention.indexer.key_length", least=1)
    indexer_top_k: int = uint("attention.indexer.top_k", least=1)
    indexer_block_size: int = uint("attention.indexer.block_size", least=1)
    indexer_local_blocks: int = uint("attention.indexer.local_blocks")

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if any(n != self.indexer_n_head for n in self.n_head_kv[self.n_layer_dense_lead :]):
            raise keys.error(
                "attention.indexer.head_count",
                f"must be attention.head_count_kv = {self.n_head_kv[-1]}, one head per group",
            )
        if self.indexer_head_size < self.n_rot:
            raise keys.error(
                "attention.indexer.key_length",
                f"must be at least rope.dimension_count = {self.n_rot}",
            )

    @property
    def blocks(self) -> BlockSizes:
        return BlockSizes(
            self.indexer_head_size,
            self.indexer_block_size,
            self.indexer_top_k,
            self.indexer_local_blocks,
        )


class MinimaxM3(Decoder):
    arch = "minimax-m3"
    sizes = {60: "428B.A23B"}
    HParams = MinimaxM3HParams
    hp: MinimaxM3HParams

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp, norms=head_norms(w, hp))
            if il < hp.n_layer_dense_lead
            else BlockAttention(w, hp, hp.blocks),
            w.norm("ffn_norm", hp.n_embd),
            expert_layer(w, hp, il, bias="needed", act=SWIGLU_OAI),
        )

    def memory_spec(self, il: int) -> MemorySpecs:
        kept, hp = super().memory_spec(il), self.hp
        if il < hp.n_layer_dense_lead:
            return kept
        return *kept, Index(hp.indexer_head_size, hp.rope(il), rotated=False)
