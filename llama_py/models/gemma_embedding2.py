"""EmbeddingGemma 2: Gemma 4's layers with a symmetric window and a projected input for each layer;
tokens are projected before pooling."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.blocks.per_layer import LayerGate, ProjectedInputs
from llama_py.gguf.keys import Keys, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.models.gemma4 import Gemma4, Gemma4Layer
from llama_py.models.trunks.encoder import Encoder
from llama_py.models.trunks.kv_shared import SharedKVDecoder, SharedKVHParams
from llama_py.weights import Weights


class GemmaEmbedding2HParams(SharedKVHParams):
    """n_embd_per_layer  dimensions of each layer's separate input"""

    window_kind = "symmetric"
    causal_attn = cached = False
    within_step = 256
    n_pattern = 6
    final_logit_softcap = 0.0
    n_embd_per_layer: int = uint("embedding_length_per_layer_input", least=1)

    def load(self, keys: Keys) -> None:
        self.n_layer_kv_from_start = self.n_layer_all
        super().load(keys)


class GemmaEmbedding2(Encoder, SharedKVDecoder):
    arch = "gemma-embedding2"
    HParams = GemmaEmbedding2HParams
    hp: GemmaEmbedding2HParams
    names = {**Gemma4.names, "out_scaled": ""}

    def declare_ends(self, w: Weights) -> None:
        hp = self.hp
        self.output_norm = w.norm("output_norm", hp.n_embd)
        self.output = w.linear("output", hp.n_embd, hp.n_embd_out, scaled=False)
        self.per_layer = ProjectedInputs(w, hp, hp.n_embd_per_layer)

    def layer(self, w: Weights, il: int) -> Gemma4Layer:
        hp = self.hp
        gate = LayerGate(w, hp.n_embd, hp.n_embd_per_layer)
        out_scale = w.tensor("layer_output_scale.weight", 1)
        return Gemma4Layer(w, hp, gate=gate, out_scale=out_scale)

    def embed(self, g: GraphBuilder) -> Tensor:
        cur = super().embed(g)
        g.shared("inp_per_layer", lambda: self.per_layer(g, cur))
        return cur

    def normalize_output(self, g: GraphBuilder, cur: Tensor) -> Tensor:
        return self.output(g, self.output_norm(g, cur, "result_norm"))
