"""Of models that are called so."""

from llama_py.tokenizer.stripped._strips import Strips

STRIPS = Strips(name=("modern-bert",), left=("[MASK]",), order=2)
