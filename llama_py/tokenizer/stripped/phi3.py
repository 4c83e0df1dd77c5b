"""Spaces that the tokenizers of models called phi-3 or phi3 strip around tokens."""

from llama_py.tokenizer.stripped._strips import Strips

STRIPS = Strips(
    name=("phi-3", "phi3"),
    right=("</s>",),
    all_right=True,
    spared=("<unk>", "<s>", "<|endoftext|>"),
    order=1,
)
