"""Checkpoints of InternLM 2 and 3 (conversion/internlm.py)."""

from __future__ import annotations

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.models.llama import LlamaConverter
from llama_py.checkpoint.names import pairs
from llama_py.checkpoint.rotary import permute
from llama_py.checkpoint.sentencepiece import NORMAL, UNUSED, read_sentencepiece
from llama_py.checkpoint.special_tokens import SpecialTokens
from llama_py.checkpoint.vocabulary import Vocabulary

END_OF_TURN = "<|im_end|>"  # is the chat models' end of text as well


class InternLM2Converter(Converter):
    arch = "internlm2"
    classes = ("InternLM2ForCausalLM",)
    names = pairs("""
        model.tok_embeddings=token_embd model.norm=output_norm output=output
        model.layers.{}: attention_norm=attn_norm ffn_norm=ffn_norm attention.wq=attn_q
            attention.wk=attn_k attention.wv=attn_v attention.wo=attn_output
            feed_forward.w1=ffn_gate feed_forward.w2=ffn_down feed_forward.w3=ffn_up
    """)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if "attention.wqkv" not in name:
            yield from super().tensors(name, array, layer)
            return
        for part, new in zip("qkv", self._separate(array), strict=True):
            yield from super().tensors(name.replace("wqkv", f"w{part}"), new, layer)

    def _separate(self, array: LazyArray) -> tuple[LazyArray, LazyArray, LazyArray]:
        """Return queries, keys and values, stored by key head: its queries, its key, its value."""
        n_head, n_head_kv = self.integer("num_attention_heads"), self.integer("num_key_value_heads")
        n_embd, each = self.integer("hidden_size"), n_head // n_head_kv
        heads = array.reshape(n_head_kv, each + 2, n_embd // n_head, n_embd)
        q, k, v = (part.reshape(-1, n_embd) for part in heads.split([each, 1, 1], 1))
        return permute(q, n_head), permute(k, n_head_kv), v

    def vocabulary(self, v: Vocabulary) -> None:
        tokens, scores, types = v.pieces()
        for id, text in enumerate(tokens):
            if text == "\0":  # an empty string in C
                tokens[id] = "\N{DRAGON}"
            if types[id] == NORMAL and text.startswith("[UNUSED"):
                types[id] = UNUSED
        v.write("llama", "default", tokens, types, scores)
        path = v.folder.path / "tokenizer.model"
        prefix = read_sentencepiece(path).add_dummy_prefix
        self.out.boolean("tokenizer.ggml.add_space_prefix", prefix)
        special = SpecialTokens(v.folder, n_vocab=len(tokens))
        if END_OF_TURN in tokens:
            special.ids["eos"] = tokens.index(END_OF_TURN)
        special.write(self.out)


class InternLM3Converter(LlamaConverter):
    arch = "llama"
    classes = ("InternLM3ForCausalLM",)
    skipped = ("vision_model",)

    def extra(self) -> NamedArrays:
        yield from ()

    def vocabulary(self, v: Vocabulary) -> None:
        tokens, scores, types = v.pieces()
        v.write("llama", "default", tokens, types, scores)
        v.write_space_prefix()
        special = SpecialTokens(v.folder, n_vocab=len(tokens))
        for id, token in v.added_tokens():
            if token.get("special") and token["content"] == END_OF_TURN and "eos" in special.ids:
                special.ids["eos"] = id
        special.write(self.out)
