"""Maincoder: queries and keys are normed head by head after RoPE (models/maincoder.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import LateNormedAttention, head_norms
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.plain import PlainDecoder, WholeHParams
from llama_py.weights import Weights


class MaincoderHParams(WholeHParams):
    rope_type = ROPE_NORMAL


class Maincoder(PlainDecoder):
    arch = "maincoder"
    HParams = MaincoderHParams
    sizes = {32: "1B"}
    names = {"Qcur_normed": "Qcur", "Kcur_normed": "Kcur"}

    def attention(self, w: Weights, il: int) -> Block:
        norms = head_norms(w, self.hp)
        return LateNormedAttention(w, self.hp, norms=norms, turned=("", ""))
