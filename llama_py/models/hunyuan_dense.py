"""Hunyuan, text only: RoPE sections do not make several axes (models/hunyuan-dense.cpp)."""

from __future__ import annotations

from llama_py.gguf.keys import Keys
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.hunyuan_vl import HunyuanHParams, HunyuanVL


class HunyuanDenseHParams(HunyuanHParams):
    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.rope_type = ROPE_NEOX


class HunyuanDense(HunyuanVL):
    arch = "hunyuan-dense"
    HParams = HunyuanDenseHParams
