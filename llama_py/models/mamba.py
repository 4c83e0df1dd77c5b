"""Mamba: a state space with steps, inputs and outputs chosen by each token (models/mamba.cpp)."""

from __future__ import annotations

from llama_py.blocks.mamba import MambaMixer
from llama_py.gguf.keys import Keys
from llama_py.models.trunks.decoder import Decoder
from llama_py.models.trunks.ssm import PureSSMHParams, SSMLayer
from llama_py.weights import Weights


class MambaHParams(PureSSMHParams):
    ssm_n_group: int = 0

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.ssm_d_inner != 2 * self.n_embd:
            raise keys.error("ssm.inner_size", f"must be twice {self.n_embd}, embedding_length")


class Mamba(Decoder):
    arch = "mamba"
    HParams = MambaHParams
    sizes = {
        (24, 768): "0.1B",
        (48, 1024): "0.4B",
        (48, 1536): "0.8B",
        (48, 2048): "1.5B",
        (64, 2560): "3B",
    }
    hp: MambaHParams

    def layer(self, w: Weights, il: int) -> SSMLayer:
        return SSMLayer(w.norm("attn_norm", self.hp.n_embd), MambaMixer(w, self.hp))
