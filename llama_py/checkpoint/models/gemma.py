"""Checkpoints of Gemma 1, 2 and 3, and of EmbeddingGemma (conversion/gemma.py)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.names import HEAD_NORMS
from llama_py.checkpoint.pooling import find_modules, pooling_keys
from llama_py.checkpoint.safetensors import read_safetensors
from llama_py.checkpoint.shared_keys import WINDOW, Keys
from llama_py.checkpoint.special_tokens import SpecialTokens
from llama_py.checkpoint.stored import StoredModel
from llama_py.checkpoint.vocabulary import Vocabulary

log = logging.getLogger("llama_py")

RELEASED = (18, 26, 34, 42, 46, 48, 62)  # layers of Gemma 2 and 3
END_OF_TURN = 107  # a token of CodeGemma
GEMMA_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}

PERIOD, LOCAL_THETA = 6, 10000.0  # of windows, of their RoPE
GEMMA2_KEYS: Keys = (
    ("attn_logit_softcapping", "f32!", ("attn_logit_softcapping",)),
    ("final_logit_softcapping", "f32!", ("final_logit_softcapping",)),
    WINDOW,
)
GEMMA3_KEYS: Keys = (("final_logit_softcapping", "f32", ("final_logit_softcapping",)), WINDOW)


class GemmaConverter(Converter):
    """The embeddings are the output matrix as well."""

    arch = "gemma"
    classes = ("GemmaForCausalLM",)
    skipped = ("lm_head.weight",)
    adds_one = ("norm.weight",)
    exports: ClassVar[Mapping[str, str]] = {"GemmaForCausalLM": "gemma"}

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
    exports = {"Gemma2ForCausalLM": "gemma2"}

    def keys(self) -> None:
        super().keys()
        self.copy(*GEMMA2_KEYS)
        check_scale(self, 46)

    @classmethod
    def restore_config(cls, model: StoredModel) -> dict[str, Any]:
        found = {**super().restore_config(model), **model.restore(GEMMA2_KEYS, cls.prefers)}
        return {**found, "query_pre_attn_scalar": query_scalar(model, 46)}

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
    exports = {"Gemma3ForCausalLM": "gemma3_text"}

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
            cap = self.find("attn_logit_softcapping")
            raise ModelError(f"attn_logit_softcapping of Gemma 3 must be null, got {str(cap)[:50]}")
        head_dim = self.integer("head_dim")
        self.out.set_all({
            "context_length": self.integer("max_position_embeddings"),
            "attention.head_count": self.integer("num_attention_heads"),
            "attention.layer_norm_rms_epsilon": self.find("rms_norm_eps"),
            "attention.key_length": head_dim,
            "attention.value_length": head_dim,
            "rope.freq_base": self.full_rope.get("rope_theta", 1e6),
            "attention.head_count_kv": self.integer("num_key_value_heads"),
        })  # fmt: skip
        if self.arch in ("gemma3", "gemma-embedding"):
            check_scale(self, 62)
        if self.find("final_logit_softcapping"):
            self.copy(GEMMA3_KEYS[0])
        if self.config.get("sliding_window_pattern") != 1:
            self.copy(GEMMA3_KEYS[1])

    @classmethod
    def restore_config(cls, model: StoredModel) -> dict[str, Any]:
        found = {**super().restore_config(model), **model.restore(GEMMA3_KEYS, cls.prefers)}
        period = model.get("attention.sliding_window_pattern", PERIOD)
        if "sliding_window" not in found:
            found["sliding_window_pattern"] = period = 1
        elif type(period) is not int:
            raise ModelError(f"a period of windows must be an integer, got {str(period)[:50]}")
        kinds = ("full_attention", "sliding_attention")
        found["layer_types"] = [kinds[(i + 1) % period != 0] for i in range(model.n_layer)]
        return {**found, "query_pre_attn_scalar": query_scalar(model, 62)}

    @classmethod
    def restore_rope(cls, model: StoredModel) -> dict[str, Any]:
        found = super().restore_rope(model)
        if "rope_theta" not in found:
            return found
        local = {"rope_type": "default", "rope_theta": LOCAL_THETA}
        whole = found["rope_parameters"]
        return {"rope_parameters": {"full_attention": whole, "sliding_attention": local}}

    def vocabulary(self, v: Vocabulary) -> None:
        if v.has("tokenizer.model"):
            v.sentencepiece()
            self.out.boolean("tokenizer.ggml.add_space_prefix", False)
        else:
            v.bpe()


def query_scalar(model: StoredModel, n_largest: int) -> int:
    """Return the size by which llama.cpp scales queries: the head's, or in the model with n_largest
    layers the embeddings' per head (llama_model_gemma2). Warns of sizes that Google did not
    release, since GGUF has no key for this."""
    if model.n_layer not in RELEASED:
        log.warning(
            "GGUF does not store query_pre_attn_scalar, so the export has llama.cpp's value; "
            "compare it with the original config.json"
        )
    if model.n_layer == n_largest:
        return int(model.get("embedding_length") // model.get("attention.head_count"))
    return int(model.get("attention.key_length"))


def check_scale(c: Converter, n_largest: int) -> None:
    """Warn if config.json scales queries otherwise than llama.cpp."""
    n_head = max(c.integer("num_attention_heads"), 1)
    size = c.integer("hidden_size") // n_head if c.n_layer == n_largest else c.head_dim
    if (given := c.find("query_pre_attn_scalar")) not in (None, size):
        log.warning(
            "query_pre_attn_scalar %s is not stored in GGUF, so queries are scaled for %d instead",
            given,
            size,
        )


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
