"""ARWKV: Qwen2 with RWKV-7's time mix instead of attention (models/arwkv7.cpp).

llama.cpp stores the wrong tokens if it decodes several sequences together; here each sequence has
its own.
"""

from __future__ import annotations

from llama_py.blocks.time_mix7 import TimeMix7, TimeMix7HParams
from llama_py.models.trunks.rwkv import SIZES_7, ShiftedDecoder
from llama_py.weights import Weights


class Arwkv7HParams(TimeMix7HParams):
    n_shifts = 1


class Arwkv7(ShiftedDecoder):
    arch = "arwkv7"
    HParams = Arwkv7HParams
    hp: Arwkv7HParams
    sizes = SIZES_7

    def time_mix(self, w: Weights) -> TimeMix7:
        return TimeMix7(w, self.hp, optional=True)
