"""Checkpoints of Llama, Mistral, Mixtral and models like them (conversion/llama.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.experts import ExpertsConverter
from llama_py.checkpoint.rotary import permute, rope_factors, unpermute
from llama_py.checkpoint.shared_keys import VOCAB_SIZE
from llama_py.checkpoint.special_tokens import SpecialTokens
from llama_py.checkpoint.stored import StoredModel
from llama_py.checkpoint.vocabulary import Vocabulary
from llama_py.checkpoint.vocabulary_mistral import write_mistral

CODE_LLAMA, GRANITE = 32016, 49152  # sizes of vocabularies
END_OF_INFILL = 32010  # a token of Code Llama
ROTATED = ("q_proj.weight", "q_proj.bias", "k_proj.weight", "k_proj.bias")
GLM_ASR_ROLES = {
    "eos": "<|endoftext|>",
    "eot": "<|user|>",
    "unk": "<|endoftext|>",
    "bos": "<|endoftext|>",
}
MIXTRAL = {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
}


class RotatedConverter(Converter):
    """A model with rows of queries and keys in the order of transformers' RoPE."""

    permutes = True

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if self.permutes and name.endswith(ROTATED):
            array = permute(array, self.n_heads(layer, "q_proj" in name))
        yield from super().tensors(name, array, layer)

    def restore(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        for stored, one in super().restore(name, array, layer):
            if self.permutes and stored.endswith(ROTATED):
                one = unpermute(one, self.n_heads(layer, "q_proj" in stored))
            yield stored, one

    def n_heads(self, layer: int | None, of_queries: bool) -> int:
        """Return the number of heads of queries, or of keys."""
        if not of_queries and self.find("n_kv_heads", "num_key_value_heads") is not None:
            return self.integer("n_kv_heads", "num_key_value_heads")
        return self.integer("n_heads", "num_attention_heads")


class LlamaConverter(RotatedConverter, ExpertsConverter):
    arch = "llama"
    classes: ClassVar[tuple[str, ...]] = (
        "LLaMAForCausalLM",
        "LlamaForCausalLM",
        "LlamaModel",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "VLlama3ForCausalLM",
        "LlavaForConditionalGeneration",
        "VoxtralForConditionalGeneration",
        "IQuestCoderForCausalLM",
    )
    layers = MIXTRAL
    parts = ("w1", "w2", "w3")
    exports: ClassVar[Mapping[str, str]] = {
        "LlamaForCausalLM": "llama",
        "MixtralForCausalLM": "mixtral",
    }

    def select(self, name: str) -> str | None:
        name = name.replace("text_model.", "")  # SmolVLM
        selected = super().select(name)
        is_bare = self.folder.model_name == "LlamaModel"
        return f"model.{selected}" if is_bare and selected else selected

    def keys(self) -> None:
        if self.folder.model_name == "VLlama3ForCausalLM":
            self.config.setdefault("num_attention_heads", 32)
        super().keys()
        self.copy(VOCAB_SIZE)
        self.out.u32("rope.dimension_count", self.head_dim)

    @classmethod
    def choose_class(cls, model: StoredModel) -> str:
        return [*cls.exports][model.has("blk.0.ffn_gate_inp.weight")]

    @classmethod
    def restore_config(cls, model: StoredModel) -> dict[str, Any]:
        found = super().restore_config(model)
        size, n_head = model.get("rope.dimension_count"), found.get("num_attention_heads")
        if size is not None and size * n_head != found.get("hidden_size"):
            found.setdefault("head_dim", size)
        for name, part in (("attention_bias", "attn_q"), ("mlp_bias", "ffn_gate")):
            found[name] = model.has(f"blk.0.{part}.bias")
        return found

    def extra(self) -> NamedArrays:
        yield from rope_factors(self.full_rope, self.head_dim)

    def vocabulary(self, v: Vocabulary) -> None:
        if v.has("tekken.json") and not v.has("tokenizer.json"):
            write_mistral(v)
            return
        if self.folder.whole_config.get("architectures") == ["GlmasrModel"]:
            v.bpe(roles=GLM_ASR_ROLES)
            return
        v.write_space_prefix()
        if v.has("tokenizer.model"):
            v.sentencepiece()
        elif v.is_sentencepiece_json:
            v.sentencepiece_json()
        else:
            v.bpe()
        n_vocab = self.config.get("vocab_size", 32000)
        if n_vocab == CODE_LLAMA:
            special = SpecialTokens(v.folder, roles=("eot",))
            special.set("eot", END_OF_INFILL)
            special.write(self.out)
        if n_vocab == GRANITE:
            self.out.boolean("tokenizer.ggml.add_bos_token", False)
