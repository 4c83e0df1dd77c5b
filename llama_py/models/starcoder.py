"""StarCoder: GPT-2 with one key and value head for all query heads (models/starcoder.cpp)."""

from __future__ import annotations

from llama_py.models.gpt2 import Gpt2


class Starcoder(Gpt2):
    arch = "starcoder"
    sizes = {24: "1B", 36: "3B", 42: "7B", 40: "15B"}
