"""Decoders that score marked options of a text instead of predicting its next token."""

from __future__ import annotations

from abc import abstractmethod

from ggml_py.ops import add, pad
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.models.trunks.decoder import Decoder


class DecisionDecoder(Decoder):
    """Embeddings are [1, n_outputs]: the scores of the options in order, then zeros. All are NaN if
    the marks do not fit."""

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        cur = self.output_norm(g, cur, "result_norm")
        if not g.n_outputs:
            g.res.t_embd = g.expand(cur)
            return
        scores, valid = self.decide(g, cur)
        scores = pad(scores, 0, g.n_outputs - scores.ne[1], 0, 0)
        g.res.t_embd = g.expand(g.cb(add(scores, valid), "result_decision"))

    @abstractmethod
    def decide(self, g: GraphBuilder, cur: Tensor) -> tuple[Tensor, Tensor]:
        """Score options by cur [n_embd, n_outputs]. -> [1, n_options], [1] to add to each"""

    def lm_head(self, nextn: int | None = None) -> None:
        return None
