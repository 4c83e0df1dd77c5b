"""Checkpoints of Baichuan and Xverse (conversion/baichuan.py, xverse.py)."""

from __future__ import annotations

from typing import ClassVar

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.rotary import permute
from llama_py.checkpoint.sentencepiece import BYTE, CONTROL, NORMAL, USER_DEFINED
from llama_py.checkpoint.vocabulary import Vocabulary, is_byte

ZERO, ZERO_TEXT = "\x00", "<b'\\x00'>"  # a token may not be a zero byte


class XverseConverter(Converter):
    arch = "xverse"
    classes: ClassVar[tuple[str, ...]] = ("XverseForCausalLM",)

    def keys(self) -> None:
        super().keys()
        self.out.text("tensor_data_layout", "Meta AI original pth")
        self.out.u32("rope.dimension_count", self.integer("hidden_size") // self.n_head)

    @property
    def n_head(self) -> int:
        return self.integer("num_attention_heads")

    @property
    def n_head_kv(self) -> int:
        return self.integer("num_key_value_heads", "num_attention_heads")

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name.endswith("q_proj.weight"):
            array = permute(array, self.n_head)
        elif name.endswith("k_proj.weight"):
            array = permute(array, self.n_head_kv)
        yield from super().tensors(name, array, layer)

    def vocabulary(self, v: Vocabulary) -> None:
        tokenizer = v.tokenizer()
        texts = {id: text for text, id in tokenizer.get_vocab(with_added_tokens=True).items()}
        added = tokenizer.get_added_tokens_decoder()
        n_vocab = self.find("vocab_size") or len(texts)
        if missing := {*range(n_vocab)} ^ texts.keys():
            raise ModelError(
                f"{self.folder.path}: the tokenizer must have the ids below {n_vocab}, the first "
                f"that differs is {min(missing)}"
            )
        tokens, types = list[str](), list[int]()
        for id in range(n_vocab):
            text = ZERO_TEXT if texts[id] == ZERO else texts[id]
            is_special = id in added and added[id].special
            other = CONTROL if is_special else USER_DEFINED if id in added else NORMAL
            tokens.append(text)
            types.append(BYTE if text == ZERO_TEXT or is_byte(text) else other)
        v.write("llama", "default", tokens, types)
        v.write_special(n_vocab)


class BaichuanConverter(XverseConverter):
    """Queries, keys and values are one matrix."""

    arch = "baichuan"
    classes = ("BaichuanForCausalLM", "BaiChuanForCausalLM")

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if not name.endswith(".self_attn.W_pack.weight"):
            yield from super().tensors(name, array, layer)
            return
        q, k, v = array.split([array.shape[0] // 3] * 3)
        yield f"blk.{layer}.attn_q.weight", permute(q, self.n_head)
        yield f"blk.{layer}.attn_k.weight", permute(k, self.n_head_kv)
        yield f"blk.{layer}.attn_v.weight", v

    def vocabulary(self, v: Vocabulary) -> None:
        v.sentencepiece()
