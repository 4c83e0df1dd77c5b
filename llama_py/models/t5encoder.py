"""Encoder of T5 without its decoder (models/t5encoder.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.models.trunks.decoder import Layer
from llama_py.models.trunks.encoder import Encoder
from llama_py.models.trunks.t5 import BucketHParams, Tables, reader
from llama_py.weights import Weights


class T5EncoderHParams(BucketHParams):
    causal_attn = cached = False


class T5Encoder(Encoder):
    arch = "t5encoder"
    HParams = T5EncoderHParams
    hp: T5EncoderHParams
    names = {}
    layer_sum = "ffn_out"
    result = "result_norm"

    def declare_ends(self, w: Weights) -> None:
        self.output_norm = w.norm("enc.output_norm", self.hp.n_embd)
        w.skip("output.weight")

    def declare_trunk(self, w: Weights) -> None:
        self.distances = Tables(self.hp)
        self.layers = [self.layer(w.layer(il, "enc."), il) for il in range(self.hp.n_layer)]

    def layer(self, w: Weights, il: int) -> Layer:
        return reader(w, self.hp, self.distances(w))

    def normalize_output(self, g: GraphBuilder, cur: Tensor) -> Tensor:
        return super().normalize_output(g, g.cb(cur, "result_embd"))
