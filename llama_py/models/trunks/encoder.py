"""Base class of encoder-only models: embeddings of tokens or texts, without memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ggml_py._moved import Former
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.models.trunks.decoder import Decoder
from llama_py.weights import Weights


class Encoder(Decoder):
    """Tokens to embeddings: no head, no memory, no control vectors.

    result  name of the embeddings
    """

    names: Mapping[str, str] = {"l_out": ""}
    result: ClassVar[str] = "result_embd"

    def declare_ends(self, w: Weights) -> None:
        self.output_norm = w.norm("output_norm", self.hp.n_embd)
        w.skip("output.weight")

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        g.res.t_embd = g.expand(g.cb(self.normalize_output(g, cur), self.result))

    def normalize_output(self, g: GraphBuilder, cur: Tensor) -> Tensor:
        """Normalize the last layer's result."""
        return self.output_norm(g, cur)

    def lm_head(self, nextn: int | None = None) -> None:
        return None

    normed = Former("normalize_output")
