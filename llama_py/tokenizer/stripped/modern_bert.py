"""Spaces that the tokenizers of models called modern-bert strip around tokens."""

from llama_py.tokenizer.stripped._strips import Strips

STRIPS = Strips(name=("modern-bert",), left=("[MASK]",), order=2)
