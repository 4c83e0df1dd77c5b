"""Checkpoints of Qwen3, its embeddings and its rerankers (llama.cpp's Qwen3Model)."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays, stack
from llama_py.checkpoint.models.qwen2 import Qwen2Converter
from llama_py.checkpoint.names import HEAD_NORMS
from llama_py.checkpoint.stored import StoredModel

RANK = 4  # llama_pooling_type
RERANK_TEMPLATE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that "
    "answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)


class Qwen3Converter(Qwen2Converter):
    arch = "qwen3"
    classes: ClassVar[tuple[str, ...]] = (
        "Qwen3ForCausalLM",
        "Qwen3Model",
        "Qwen3ForSequenceClassification",
    )
    layers = HEAD_NORMS
    exports = {"Qwen3ForCausalLM": "qwen3"}

    @classmethod
    def restore_config(cls, model: StoredModel) -> dict[str, Any]:
        if model.has("cls.output.weight"):
            raise ModelError(
                "rerankers cannot be exported, because the file has only two rows of the output "
                "matrix; use the original checkpoint"
            )
        return {**super().restore_config(model), "attention_bias": model.has("blk.0.attn_q.bias")}

    @cached_property
    def is_reranker(self) -> bool:
        """True if the model's logits of "yes" and "no" are scores."""
        card = (self.folder.text("README.md") or "").lower()
        if "# qwen3-reranker" in card or "# qwen3-vl-reranker" in card:
            return True
        names = (
            self.folder.path.name,
            self.config.get("_name_or_path"),
            self.config.get("model_type"),
            self.folder.model_name,
        )
        hints = [str(name).lower() for name in names if name]
        known = ("qwen3-reranker", "qwen3-vl-reranker")
        return any(word in hint for hint in hints for word in known) or (
            "sequenceclassification" in self.folder.model_name.lower()
        )

    def keys(self) -> None:
        super().keys()
        if self.is_reranker:
            self.out.u32("pooling_type", RANK)
            self.out.array("classifier.output_labels", ["yes", "no"])
            self.out.text("tokenizer.chat_template.rerank", RERANK_TEMPLATE)
            self.out.array("tokenizer.chat_templates", ["rerank"])

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        is_tied = bool(self.config.get("tie_word_embeddings", False))
        if self.is_reranker and ("embed_tokens" if is_tied else "lm_head") in name:
            yield "cls.output.weight", self._scores(array)
            if not is_tied:
                return
        yield from super().tensors(name, array, layer)

    def _scores(self, array: LazyArray) -> LazyArray:
        """Return the rows of the tokens "yes" and "no" of an output matrix."""
        vocab = self.folder.json("tokenizer.json").get("model", {}).get("vocab", {})
        ids = [vocab.get("yes"), vocab.get("no")]
        if not all(type(id) is int and 0 <= id < array.shape[0] for id in ids):
            raise ModelError(
                f"{self.folder.path}: a reranker's vocabulary must have the tokens yes and no, got "
                f"ids {ids}"
            )
        return stack([array.rows(id, id + 1).reshape(array.shape[1]) for id in ids])
