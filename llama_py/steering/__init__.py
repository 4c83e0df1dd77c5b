"""Control vectors from pairs of prompts, logit lens, sparse autoencoders.

    pairs = template_pairs("Talk like a {} person.", ["happy"], ["sad"], suffixes=["I", "We went"])
    happy = train(model, pairs)                          # a direction for each layer
    ctx.set_control_vector(1.5 * happy)                  # and None for no vector
    happy.save("happy.gguf")                             # llama.cpp's form; ControlVector.load

`llama-py-cvector-generator` does the same from files of prompts.
"""

from __future__ import annotations

from llama_py.steering.pairs import Pair, template_pairs
from llama_py.steering.training import train
from llama_py.steering.vector import ControlVector

__all__ = ["ControlVector", "Pair", "template_pairs", "train"]
