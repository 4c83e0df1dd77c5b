"""Spaces that the tokenizer of mmBERT strips around tokens."""

from llama_py.tokenizer.stripped._strips import Strips

STRIPS = Strips(pre=("mmbert",), left=("<mask>",))
