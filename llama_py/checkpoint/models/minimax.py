"""Checkpoints of MiniMax-Text-01, M1, M2 and M3 (conversion/minimax.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ggml_py.types import F32, GGMLType
from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.experts import ExpertsConverter, per_layer
from llama_py.checkpoint.models.kimi_linear import SPARSE
from llama_py.checkpoint.names import HEAD_NORMS
from llama_py.checkpoint.shared_keys import EXPERT_SCALE, SHARED_COUNT
from llama_py.checkpoint.vocabulary import Vocabulary

SCALES = tuple(f"layernorm_{part}" for part in ("full_attention", "linear_attention", "mlp"))
LINEAR = {
    "self_attn.norm": "attn_norm_2",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.out_proj": "attn_output",
    "self_attn.output_gate": "attn_gate",
}
INDEXER = {
    "self_attn.index_q_proj": "indexer.q_proj",
    "self_attn.index_k_proj": "indexer.k_proj",
    "self_attn.index_q_norm": "indexer.q_norm",
    "self_attn.index_k_norm": "indexer.k_norm",
}
EMBEDDINGS = "model.embed_tokens.weight"


class MiniMaxText01Converter(ExpertsConverter):
    arch = "minimax-01"
    classes: ClassVar[tuple[str, ...]] = ("MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM")
    layers = {**SPARSE, **LINEAR}
    parts = ("w1", "w2", "w3")

    def keys(self) -> None:
        super().keys()
        if ids := self._unused_ids():
            self.out.array("tokenizer.ggml.suppress_tokens", ids)
        alphas, betas = ({self.find(f"{s}_{kind}") for s in SCALES} for kind in ("alpha", "beta"))
        if len(alphas) != 1 or betas != {1.0}:
            names = [f"{scale}_alpha" for scale in SCALES]
            raise self.refuse(names, "equal, and the betas 1")
        self.out.f32("residual_scale", *alphas)
        self.out.u32("rope.dimension_count", self.integer("rotary_dim"))

    def _unused_ids(self) -> Sequence[int]:
        """Return ids that the tokenizer lacks, with zeros as embeddings: the model would choose
        them."""
        tokenizer = self.folder.json("tokenizer.json").get("model")
        known = tokenizer.get("vocab") if isinstance(tokenizer, dict) else None
        embeddings = self.folder.tensors.get(EMBEDDINGS)
        if not isinstance(known, dict) or embeddings is None:
            return []
        added = embeddings.rows(len(known)).read()
        ids: list[int] = (np.flatnonzero(~added.any(axis=1)) + len(known)).tolist()
        return ids

    def vocabulary(self, v: Vocabulary) -> None:
        v.bpe()
        if (template := self.folder.text("chat_template.jinja")) is not None:
            self.out.text("tokenizer.chat_template", template)


class MiniMaxM2Converter(ExpertsConverter):
    arch = "minimax-m2"
    classes: ClassVar[tuple[str, ...]] = ("MiniMaxM2ForCausalLM",)
    layers = {**SPARSE, **HEAD_NORMS, "block_sparse_moe.e_score_correction": "exp_probs_b"}
    parts = ("w1", "w2", "w3")

    def keys(self) -> None:
        super().keys()
        self.copy(
            ("expert_feed_forward_length", "u32!", ("intermediate_size",)),
            ("rope.dimension_count", "u32!", ("rotary_dim",)),
        )


class MiniMaxM3Converter(MiniMaxM2Converter):
    arch = "minimax-m3"
    classes: ClassVar[tuple[str, ...]] = (
        "MiniMaxM3SparseForCausalLM",
        "MiniMaxM3SparseForConditionalGeneration",
    )
    layers = INDEXER
    adds_one = ("norm.weight",)

    def keys(self) -> None:
        super().keys()
        self.copy(SHARED_COUNT, EXPERT_SCALE)
        self.out.boolean("expert_weights_norm", True)
        sparse = self.find("sparse_attention_config")
        if not isinstance(sparse, dict):
            raise self.refuse(("sparse_attention_config",))
        for key, name in (
            ("head_count", "sparse_num_index_heads"),
            ("key_length", "sparse_index_dim"),
            ("top_k", "sparse_topk_blocks"),
            ("block_size", "sparse_block_size"),
            ("local_blocks", "sparse_local_block"),
        ):
            self.out.u32(f"attention.indexer.{key}", sparse.get(name))
        experts = per_layer(self, "moe_layer_freq")
        n_dense = next((i for i, n in enumerate(experts) if n != 0), len(experts))
        self.out.u32("leading_dense_block_count", n_dense)

    def forced_type(self, name: str, array: LazyArray) -> GGMLType | None:
        return F32 if ".indexer." in name else None
