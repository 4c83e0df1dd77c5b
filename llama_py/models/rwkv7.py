"""RWKV-7: no attention, a state that each token also subtracts from (models/rwkv7.cpp)."""

from __future__ import annotations

from llama_py.blocks.rwkv import ChannelMixHParams
from llama_py.blocks.time_mix7 import TimeMix7, TimeMix7HParams
from llama_py.models.trunks.rwkv import SIZES_7, RwkvDecoder, RwkvLayer
from llama_py.weights import Weights


class Rwkv7HParams(TimeMix7HParams, ChannelMixHParams):
    pass


class Rwkv7(RwkvDecoder):
    arch = "rwkv7"
    HParams = Rwkv7HParams
    hp: Rwkv7HParams
    sizes = SIZES_7

    def layer(self, w: Weights, il: int) -> RwkvLayer:
        return self.mixed_layer(w, TimeMix7(w, self.hp), gated=False)
