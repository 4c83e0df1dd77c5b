"""BERT and its many variants: embeddings and rerankers (models/bert.cpp)."""

from __future__ import annotations

from ggml_py.ops import add, get_rows
from ggml_py.tensor import Tensor
from llama_py.blocks.pooling import classifier
from llama_py.graph.builder import GraphBuilder
from llama_py.models.trunks.bert import BertEncoder
from llama_py.weights import Weights


class Bert(BertEncoder):
    arch = "bert"
    sizes = {3: "17M", 6: "22M", (12, 384): "33M", (12, 768): "109M", 24: "335M"}

    def declare_ends(self, w: Weights) -> None:
        super().declare_ends(w)
        self.pos_embd = w.tensor("position_embd.weight", self.hp.n_embd, self.hp.n_ctx_train)
        self.classifier = classifier(w, self.hp)

    def place(self, g: GraphBuilder, cur: Tensor) -> Tensor:
        return add(get_rows(self.pos_embd, g.inp_pos), cur)
