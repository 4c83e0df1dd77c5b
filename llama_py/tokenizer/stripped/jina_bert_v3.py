"""Of Jina Embeddings 3."""

from llama_py.tokenizer.stripped._strips import Strips

STRIPS = Strips(arch=("jina-bert-v3",), left=("<mask>",))
