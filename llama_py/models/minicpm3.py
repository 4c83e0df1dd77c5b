"""MiniCPM 3: latent attention; scales on embeddings, block results and the head's input
(models/minicpm3.cpp)."""

from __future__ import annotations

import numpy as np

from ggml_py.ops import scale
from ggml_py.tensor import Tensor
from llama_py.blocks.rope import RopeFactors
from llama_py.gguf.keys import Keys, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import EarlyScaleDecoder
from llama_py.models.trunks.latent import LatentSizesHParams
from llama_py.models.trunks.latent_dense import LatentDense
from llama_py.weights import Weights

# For all models; they are not read from files.
EMBEDDING_SCALE, DEPTH_SCALE, N_EMBD_BASE = 12.0, 1.4, 256


class MiniCpm3HParams(LatentSizesHParams):
    rope_type = ROPE_NEOX
    least_nope = 0
    n_lora_q: int = uint("attention.q_lora_rank", least=1)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.logit_scale = N_EMBD_BASE / self.n_embd


class MiniCpm3(EarlyScaleDecoder, LatentDense):
    arch = "minicpm3"
    HParams = MiniCpm3HParams
    sizes = {62: "4B"}

    def declare(self, w: Weights) -> None:
        self.factors = RopeFactors(w, self.hp, long=True)
        f32 = np.float32
        self.residual_scale = float(f32(DEPTH_SCALE) / np.sqrt(f32(self.hp.n_layer)))
        super().declare(w)

    def embed(self, g: GraphBuilder) -> Tensor:
        return g.cb(scale(super().embed(g), EMBEDDING_SCALE), "inp_scaled")
