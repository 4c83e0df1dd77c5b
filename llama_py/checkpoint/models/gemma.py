"""Checkpoints of Gemma 1, 2 and 3, and of EmbeddingGemma (conversion/gemma.py)."""

from __future__ import annotations

from typing import ClassVar

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.names import HEAD_NORMS
from llama_py.checkpoint.pooling import find_modules, pooling_keys
from llama_py.checkpoint.safetensors import read_safetensors
from llama_py.checkpoint.special_tokens import SpecialTokens
from llama_py.checkpoint.vocabulary import Vocabulary

END_OF_TURN = 107  # a token of CodeGemma
GEMMA_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


class GemmaConverter(Converter):
    """The embeddings are the output matrix as well."""

    arch = "gemma"
    classes = ("GemmaForCausalLM",)
    skipped = ("lm_head.weight",)
    adds_one = ("norm.weight",)

    def keys(self) -> None:
        head_dim = self.integer("head_dim")
        self.out.set_all({
            "context_length": self.integer("max_position_embeddings"),
            "embedding_length": self.integer("hidden_size"),
            "block_count": self.n_layer,
            "feed_forward_length": self.integer("intermediate_size"),
            "attention.head_count": self.integer("num_attention_heads"),
            "attention.head_count_kv": self.integer("num_key_value_heads", "num_attention_heads"),
            "attention.layer_norm_rms_epsilon": self.find("rms_norm_eps"),
            "attention.key_length": head_dim,
            "attention.value_length": head_dim,
            "general.file_type": self.file_type,
        })  # fmt: skip

    def vocabulary(self, v: Vocabulary) -> None:
        v.sentencepiece()
        special = SpecialTokens(self.folder, roles=("eot",))
        special.set("eot", END_OF_TURN)
        special.write(self.out)
        self.out.boolean("tokenizer.ggml.add_space_prefix", False)


class Gemma2Converter(GemmaConverter):
    arch = "gemma2"
    classes = ("Gemma2ForCausalLM",)
    layers = GEMMA_NORMS

    def keys(self) -> None:
        super().keys()
        self.out.set_all({
            "attn_logit_softcapping": self.find("attn_logit_softcapping"),
            "final_logit_softcapping": self.find("final_logit_softcapping"),
            "attention.sliding_window": self.integer("sliding_window"),
        })  # fmt: skip

    def vocabulary(self, v: Vocabulary) -> None:
        v.sentencepiece()
        self.out.boolean("tokenizer.ggml.add_space_prefix", False)


class Gemma3Converter(Converter):
    arch = "gemma3"
    classes: ClassVar[tuple[str, ...]] = ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration")
    layers = {**GEMMA_NORMS, **HEAD_NORMS}
    defaults = {
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
    }
    adds_one: ClassVar[tuple[str, ...]] = ("norm.weight",)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if "embed_tokens.weight" in name:
            array = array.rows(0, self._n_tokens(array.shape[0]))
        yield from super().tensors(name, array, layer)

    def _n_tokens(self, n_rows: int) -> int:
        """Return the number of tokens; the matrix may have more rows."""
        if (self.folder.path / "tokenizer.model").is_file():
            n = self.find("vocab_size_per_layer_input", "vocab_size") or n_rows
            return n if type(n) is int else n_rows
        stored = self.folder.json("tokenizer.json")
        try:
            return len(stored["model"]["vocab"]) + len(stored["added_tokens"])
        except (KeyError, TypeError):
            return n_rows

    def keys(self) -> None:
        super().keys()
        if self.find("attn_logit_softcapping") is not None:
            raise ModelError("attn_logit_softcapping of Gemma 3 must be null")
        head_dim, softcap = self.integer("head_dim"), self.find("final_logit_softcapping")
        has_window = self.config.get("sliding_window_pattern") != 1
        window = {"attention.sliding_window": self.find("sliding_window")}
        self.out.set_all({
            "context_length": self.integer("max_position_embeddings"),
            "attention.head_count": self.integer("num_attention_heads"),
            "attention.layer_norm_rms_epsilon": self.find("rms_norm_eps"),
            "attention.key_length": head_dim,
            "attention.value_length": head_dim,
            "rope.freq_base": self.full_rope.get("rope_theta", 1e6),
            **({"final_logit_softcapping": softcap} if softcap else {}),
            **(window if has_window else {}),
            "attention.head_count_kv": self.integer("num_key_value_heads"),
        })  # fmt: skip

    def vocabulary(self, v: Vocabulary) -> None:
        if v.has("tokenizer.model"):
            v.sentencepiece()
            self.out.boolean("tokenizer.ggml.add_space_prefix", False)
        else:
            v.bpe()


class EmbeddingGemmaConverter(Gemma3Converter):
    """EmbeddingGemma. The option `dense` adds the layers after the pooling."""

    arch = "gemma-embedding"
    classes = ("Gemma3TextModel",)

    def select(self, name: str) -> str | None:
        found = super().select(name)
        return found if found is None else f"model.{found.removeprefix('model.')}"

    def keys(self) -> None:
        super().keys()
        for number, module in self._dense_modules():
            sizes = self.folder.json(f"{module}/config.json")
            for side in ("in", "out"):
                if (size := sizes.get(f"{side}_features")) is not None:
                    self.out.u32(f"dense_{number}_feat_{side}", size)
        pooling_keys(self.folder, self.out)

    def extra(self) -> NamedArrays:
        for number, module in self._dense_modules():
            stored = read_safetensors(self.folder.path / module / "model.safetensors")
            for name, t in stored.items():
                if name.endswith(".weight"):
                    new = name.replace("linear", f"dense_{number}")
                    yield new, LazyArray.from_stored(t)

    def _dense_modules(self) -> list[tuple[int, str]]:
        """Return the layers after the pooling: number in GGUF, subfolder."""
        found = find_modules(self.folder, "Dense") if self.options.dense else []
        return [(2 if path == "2_Dense" else 3, path) for path in found
                if (self.folder.path / path / "model.safetensors").is_file()]  # fmt: skip
