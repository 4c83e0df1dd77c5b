"""Of Nomic Embed 2."""

from llama_py.tokenizer.stripped._strips import Strips

STRIPS = Strips(arch=("nomic-bert-moe",), left=("<mask>",))
