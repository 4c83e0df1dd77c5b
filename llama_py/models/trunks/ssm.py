"""Decoders of selective state space models only: no attention, no feed-forward."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.ops import add
from ggml_py.tensor import Tensor
from llama_py.blocks.mamba import SSMHParams
from llama_py.gguf.keys import number
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import RMS_EPS
from llama_py.models.trunks.decoder import Block


class PureSSMHParams(SSMHParams):
    f_norm_rms_eps: float = number(RMS_EPS, least=0)

    def is_recr(self, il: int) -> bool:
        return True


@dataclass(slots=True)
class SSMLayer:
    """Residual layer x + block(norm(x)) of one block."""

    norm: Norm
    block: Block

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        residual = cur
        cur = self.block(g, self.norm(g, cur, "attn_norm", il), il)
        if last:  # only output rows remain
            cur, residual = g.outputs(cur, residual)
        return add(cur, residual)
