"""Of models that are called so."""

from llama_py.tokenizer.stripped._strips import Strips

STRIPS = Strips(
    name=("phi-3", "phi3"),
    right=("</s>",),
    all_right=True,
    spared=("<unk>", "<s>", "<|endoftext|>"),
    order=1,
)
