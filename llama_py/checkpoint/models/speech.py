"""Checkpoints of text models that generate speech: Qwen3-TTS and Pocket TTS
(conversion/qwen3tts.py, pockettts.py)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import Array, LazyArray, NamedArrays, concat
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.models.qwen3 import Qwen3Converter
from llama_py.checkpoint.names import pairs
from llama_py.checkpoint.sentencepiece import CONTROL, read_sentencepiece
from llama_py.checkpoint.special_tokens import SpecialTokens
from llama_py.checkpoint.vocabulary import ADDED_SCORE, Vocabulary

CODES = "model.codec_embedding.weight"
FOLDED = (
    "model.text_embedding.weight",
    "text_projection.linear_fc1.weight",
    "text_projection.linear_fc1.bias",
    "text_projection.linear_fc2.weight",
    "text_projection.linear_fc2.bias",
)
N_OTHER_CODES = 1024  # at the end; the model samples only the others, and the end of speech
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
}
EXTRA = ("<|pad|>", "<|bos_before_voice|>", "<|audio_bos|>")  # rows after the embeddings
BEFORE_VOICE, FIRST_LATENT = "flow_lm.bos_before_voice", "flow_lm.bos_emb"
EMBEDDING, INPUT = "flow_lm.conditioner.embed.weight", "flow_lm.input_linear.weight"


class Qwen3TtsConverter(Converter):
    """Embeddings of texts go through a network, which is applied here; codes of sound follow."""

    arch = "qwen3tts"
    classes = ("Qwen3TTSForConditionalGeneration",)
    names = {**Qwen3Converter.names, "codec_head": "output", "model.token_embd": "token_embd"}

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        self.talker = folder.config.get("talker_config")
        if not isinstance(self.talker, dict):
            raise ModelError(
                f"{folder.path / 'config.json'}: talker_config is missing; download the file again"
            )
        folder.config |= self.talker
        folder.config["vocab_size"] = folder.config.get("text_vocab_size")
        super().__init__(folder, options)
        self.waiting: dict[str, LazyArray] = {}

    def select(self, name: str) -> str | None:
        if not name.startswith("talker.") or name.startswith("talker.code_predictor."):
            return None
        return super().select(name.removeprefix("talker."))

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name != CODES and name not in FOLDED:
            yield from super().tensors(name, array, layer)
            return
        self.waiting[name] = array
        if len(self.waiting) == len(FOLDED) + 1:
            yield "token_embd.weight", concat([self._fold(), self.waiting[CODES]])

    def _fold(self) -> LazyArray:
        """Return the embeddings of texts after their network."""
        embedding, up, up_bias, down, down_bias = (self.waiting[name] for name in FOLDED)
        name = str(self.find("hidden_act"))
        if name not in ACTIVATIONS:
            raise ModelError(f"hidden_act must be {' or '.join(ACTIVATIONS)}, got {name[:50]!r}")

        def make() -> Array:
            hidden = ACTIVATIONS[name](embedding.read() @ up.read().T + up_bias.read())
            folded: Array = hidden @ down.read().T + down_bias.read()
            return folded.astype(np.float32, copy=False)

        return LazyArray((embedding.shape[0], down.shape[0]), np.float32, make, embedding.stored)

    def check_complete(self) -> None:
        if missing := [name for name in (*FOLDED, CODES) if name not in self.waiting]:
            raise ModelError(f"{self.folder.path}: talker.{missing[0]} is missing")

    def keys(self) -> None:
        super().keys()
        n_text, talker = self.integer("vocab_size"), self.talker or {}
        n_vocab, end = n_text + talker["vocab_size"], n_text + talker["codec_eos_token_id"]
        others = [id for id in range(n_vocab - N_OTHER_CODES, n_vocab) if id != end]
        self.out.array("tokenizer.ggml.suppress_tokens", others)
        self.out.u32("tokenizer.ggml.eos_token_id", end)
        self.out.boolean("tokenizer.ggml.add_eos_token", False)

    def codes(self) -> list[str]:
        """Return the names of the codes: by number, or of their ids in talker_config."""
        talker = self.talker or {}
        names = [f"<|codec_{i}|>" for i in range(talker["vocab_size"])]
        for key, value in talker.items():
            if key.endswith("_id"):
                kind = key.removesuffix("_id")
                ids = value if isinstance(value, dict) else {"": value}
                for part, id in ids.items():
                    if isinstance(id, int):
                        names[id] = f"<|{kind}_{part}|>" if part else f"<|{kind}|>"
        return names

    def vocabulary(self, v: Vocabulary) -> None:
        codes = self.codes()
        kinds = [CONTROL] * len(codes)
        if v.has("tokenizer.model"):
            tokens, scores, types = v.pieces()
            v.write("llama", "default", tokens + codes, types + kinds, scores + [0.0] * len(codes))
            SpecialTokens(v.folder, n_vocab=len(tokens) + len(codes)).write(self.out)
            return
        tokens, types, pre = v.tokens_of_json()
        v.write("gpt2", pre, tokens + codes, types + kinds)
        SpecialTokens(v.folder, with_merges=True).write(self.out)
        self.out.stored.pop("tokenizer.chat_template", None)  # the model does not chat


class PocketTtsConverter(Converter):
    """A model without config.json. Learned vectors become rows of the embeddings."""

    arch = "pockettts"
    classes = ("PocketTTSModel",)
    names = pairs("""
        flow_lm.conditioner.embed=token_embd flow_lm.out_norm=output_norm
        flow_lm.transformer.layers.{}: norm1=attn_norm norm2=ffn_norm
            self_attn.out_proj=attn_output linear1=ffn_up linear2=ffn_down
    """)

    def select(self, name: str) -> str | None:
        kept = ("flow_lm.transformer.layers.", "flow_lm.out_norm.", EMBEDDING)
        return super().select(name) if name.startswith(kept) else None

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name.endswith(".self_attn.in_proj.weight"):
            n = array.shape[0] // 3
            for part, new in zip("qkv", array.split([n, n, n]), strict=True):
                yield f"blk.{layer}.attn_{part}.weight", new
        elif name == EMBEDDING:
            yield from super().tensors(name, self._embeddings(array), layer)
        else:
            yield from super().tensors(name, array, layer)

    def _embeddings(self, array: LazyArray) -> LazyArray:
        stored, n = self.folder.tensors, array.shape[1]
        rows = [array]
        if BEFORE_VOICE in stored:
            rows.append(stored[BEFORE_VOICE].reshape(1, n))
        latent, weights = stored[FIRST_LATENT], stored[INPUT]

        def make() -> Array:
            row: Array = latent.read().astype(np.float32) @ weights.read().astype(np.float32).T
            return row.reshape(1, n).astype(array.dtype)

        return concat([*rows, LazyArray((1, n), array.dtype, make)])

    def vocabulary(self, v: Vocabulary) -> None:
        tokens, scores, types = v.pieces()
        has_voice = BEFORE_VOICE in self.folder.tensors
        extra = [name for name in EXTRA if has_voice or name != EXTRA[1]]
        for id, name in enumerate(extra, len(tokens) - len(extra)):
            tokens[id], scores[id], types[id] = name, ADDED_SCORE, CONTROL
        v.write("t5", "default", tokens, types, scores)
        model = read_sentencepiece(v.folder.path / "tokenizer.model")
        out = self.out
        out.boolean("tokenizer.ggml.add_space_prefix", model.add_dummy_prefix)
        out.boolean("tokenizer.ggml.remove_extra_whitespaces", model.remove_extra_whitespaces)
        if model.charsmap:
            out.add("arr[u8]", "tokenizer.ggml.precompiled_charsmap", [*model.charsmap])
        out.boolean("tokenizer.ggml.add_bos_token", False)
        out.boolean("tokenizer.ggml.add_eos_token", False)
