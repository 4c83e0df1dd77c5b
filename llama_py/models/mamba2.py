"""Mamba-2: heads that decay as one, groups that share inputs and outputs (models/mamba2.cpp)."""

from __future__ import annotations

from llama_py.blocks.mamba import Mamba2Mixer
from llama_py.gguf.keys import Keys
from llama_py.models.trunks.decoder import Decoder
from llama_py.models.trunks.ssm import PureSSMHParams, SSMLayer
from llama_py.weights import Weights


class Mamba2HParams(PureSSMHParams):
    def load(self, keys: Keys) -> None:
        self.check_groups(keys)
        super().load(keys)


class Mamba2(Decoder):
    arch = "mamba2"
    HParams = Mamba2HParams
    sizes = {
        (24, 768): "0.1B",
        (48, 1024): "0.4B",
        (48, 1536): "0.8B",
        (48, 2048): "1.5B",
        (64, 2560): "3B",
        (64, 4096): "7B",
    }
    hp: Mamba2HParams

    def layer(self, w: Weights, il: int) -> SSMLayer:
        return SSMLayer(w.norm("attn_norm", self.hp.n_embd), Mamba2Mixer(w, self.hp))
