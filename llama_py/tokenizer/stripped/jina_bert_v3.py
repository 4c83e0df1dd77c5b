"""Spaces that the tokenizer of Jina Embeddings 3 strips around tokens."""

from llama_py.tokenizer.stripped._strips import Strips

STRIPS = Strips(arch=("jina-bert-v3",), left=("<mask>",))
