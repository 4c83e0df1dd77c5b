"""RND1: Qwen3 with experts, trained for diffusion (models/rnd1.cpp)."""

from __future__ import annotations

from llama_py.models.llada_moe import LladaMoe


class Rnd1(LladaMoe):
    arch = "rnd1"
    sizes = {48: "30B.A3B"}
    norm_w = True
