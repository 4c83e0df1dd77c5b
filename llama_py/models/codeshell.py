"""CodeShell: norms and matrices with biases; embeddings may be the head (models/codeshell.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.layer_norm import LayerNormDecoder, LayerNormHParams
from llama_py.weights import Weights


class CodeshellHParams(LayerNormHParams):
    rope_type = ROPE_NEOX
    whole_rope = True


class Codeshell(LayerNormDecoder):
    arch = "codeshell"
    HParams = CodeshellHParams
    sizes = {42: "7B"}
    out_bias = ffn_bias = "needed"

    def embeddings(self, w: Weights) -> Tensor:
        sizes = self.hp.n_embd, self.hp.n_vocab
        own = w.optional_tensor("token_embd.weight", *sizes)
        if own is not None:
            return own
        w.tensor("output.weight", *sizes)
        return w.tied_tensor("output.weight")
