"""Spaces that the tokenizer of Nomic Embed 2 strips around tokens."""

from llama_py.tokenizer.stripped._strips import Strips

STRIPS = Strips(arch=("nomic-bert-moe",), left=("<mask>",))
