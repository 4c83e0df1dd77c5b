"""Qwen2VL's vision encoder (models/qwen2vl.cpp)."""

from __future__ import annotations

from llama_py.vision.projectors._qwen import Merging


class Qwen2VLProjector(Merging):
    name = "qwen2vl_merger"
    swaps = True
