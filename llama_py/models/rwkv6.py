"""RWKV-6: no attention, a state with token-dependent decay (models/rwkv6.cpp)."""

from __future__ import annotations

from llama_py.blocks.rwkv import ChannelMixHParams
from llama_py.blocks.time_mix import TimeMix6, TimeMixHParams
from llama_py.models.trunks.rwkv import SIZES_6, RwkvDecoder, RwkvLayer
from llama_py.weights import Weights


class Rwkv6HParams(TimeMixHParams, ChannelMixHParams):
    pass


class Rwkv6(RwkvDecoder):
    arch = "rwkv6"
    HParams = Rwkv6HParams
    hp: Rwkv6HParams
    sizes = SIZES_6

    def layer(self, w: Weights, il: int) -> RwkvLayer:
        every = self.hp.rescale_every_n_layers
        halved = every > 0 and (il + 1) % every == 0
        return self.mixed_layer(w, TimeMix6(w, self.hp), gated=True, halved=halved)
