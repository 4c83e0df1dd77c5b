"""The trunk of models that only encode: embeddings of tokens or texts, and nothing kept."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.memory.kept import Kept
from llama_py.models._decoder import Decoder


class Encoder(Decoder):
    """Tokens to embeddings: no head, no memory, no control vectors."""

    names = {"l_out": ""}

    def keeps(self, il: int) -> Kept:
        return ()

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        g.res.t_embd = g.expand(g.cb(cur, "result_embd"))
