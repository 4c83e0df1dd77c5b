"""Granite 3 with experts (models/granite-moe.cpp)."""

from __future__ import annotations

from llama_py.models.granite import ScaledDecoder, ScaledHParams


class GraniteMoe(ScaledDecoder):
    arch = "granitemoe"
    HParams = ScaledHParams
    sizes = {24: "1B.A400M", 32: "3B.A800M"}
