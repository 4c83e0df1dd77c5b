"""Checkpoints of the first Qwen (conversion/qwen.py: QwenModel)."""

from __future__ import annotations

from itertools import count

from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.names import pairs
from llama_py.checkpoint.tiktoken import read_ranks, write_ranks
from llama_py.checkpoint.vocabulary import Vocabulary

# Tokens that Qwen's program adds to qwen.tiktoken
ADDED = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205)))


class QwenConverter(Converter):
    arch = "qwen"
    classes = ("QWenLMHeadModel",)
    names = pairs("""
        transformer.wte=token_embd transformer.ln_f=output_norm lm_head=output
        transformer.h.{}: ln_1=attn_norm ln_2=ffn_norm attn.c_attn=attn_qkv
            attn.c_proj=attn_output mlp.w1=ffn_up mlp.w2=ffn_gate mlp.c_proj=ffn_down
    """)

    def keys(self) -> None:
        super().keys()
        # The norms are RMSNorm. llama.cpp's converter writes the other key, and llama.cpp cannot
        # load its file.
        self.copy(("attention.layer_norm_rms_epsilon", "f32", ("layer_norm_epsilon",)))

    def vocabulary(self, v: Vocabulary) -> None:
        ranks = read_ranks(v.folder.path / "qwen.tiktoken")
        special = dict(zip(count(len(ranks)), ADDED, strict=False))
        n_vocab = v.check_size(len(ranks) + len(ADDED), len(ranks) + len(ADDED))
        end = {"bos": len(ranks), "eos": len(ranks)}
        write_ranks(v, ranks, special, n_vocab, "qwen2", end, {"unk": len(ranks)})
