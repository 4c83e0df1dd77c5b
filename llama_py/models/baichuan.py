"""Baichuan: the 32-layer model is Llama, the 40-layer model uses ALiBi instead of RoPE
(models/baichuan.cpp)."""

from __future__ import annotations

from llama_py.gguf.keys import Keys
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.plain import PlainDecoder, WholeHParams


class BaichuanHParams(WholeHParams):
    """Hyperparameters; models of other sizes have no positions at all, like in llama.cpp."""

    def load(self, keys: Keys) -> None:
        if self.n_layer == 32:
            self.rope_type = ROPE_NORMAL
        elif self.n_layer == 40:
            self.max_alibi_bias = 8.0


class Baichuan(PlainDecoder):
    arch = "baichuan"
    HParams = BaichuanHParams
    sizes = {32: "7B", 40: "13B"}
