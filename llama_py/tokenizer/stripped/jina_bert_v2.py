"""Spaces that Jina Embeddings 2 tokenizers (except English) strip around tokens."""

from llama_py.tokenizer.stripped._strips import Strips

STRIPS = Strips(pre=("jina-v2-de", "jina-v2-es", "jina-v2-code"), left=("<mask>",))
