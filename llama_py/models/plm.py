"""PLM: latent attention, a feed-forward without a gate (models/plm.cpp).

llama.cpp cannot run it: it stores values with one row for several tokens.
"""

from __future__ import annotations

from llama_py.blocks.activation import RELU_SQR
from llama_py.blocks.feed_forward import FeedForward
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.latent import LatentSizesHParams
from llama_py.models.trunks.latent_dense import LatentDense
from llama_py.weights import Weights


class PlmHParams(LatentSizesHParams):
    rope_type = ROPE_NORMAL


class Plm(LatentDense):
    arch = "plm"
    HParams = PlmHParams
    sizes = {32: "1.8B"}

    def feed_forward(self, w: Weights, il: int) -> Block:
        n_ff = self.hp.layers[il].n_ff
        return FeedForward(w, self.hp.n_embd, n_ff, act=RELU_SQR, gated=False, scaled=False)
