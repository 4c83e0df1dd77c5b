"""Pocket TTS, text model only: no biases except in norms. The file has no speech decoder; like in
llama.cpp the embeddings serve as a head (models/pockettts.cpp)."""

from __future__ import annotations

from llama_py.graph.linear import Linear
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.layer_norm import LayerNormDecoder, LayerNormHParams
from llama_py.weights import Weights


class PocketTtsHParams(LayerNormHParams):
    rope_type = ROPE_NORMAL
    whole_rope = True


class PocketTts(LayerNormDecoder):
    arch = "pockettts"
    HParams = PocketTtsHParams
    sizes = {6: "109M", 24: "335M"}

    def declare_ends(self, w: Weights) -> None:
        self.output_norm = self.norm(w, "output_norm")
        self.output = Linear(w.tied_tensor("token_embd.weight"))
