"""What Kimi's models have in common: delta nets in layers without key heads."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.geometry import ROPE_NONE
from llama_py.graph.builder import GraphBuilder
from llama_py.keys import Keys, uint
from llama_py.models._decoder import Block
from llama_py.models._latent import LatentHParams


class KimiHParams(LatentHParams):
    """n_embd_head_kda is the size S of a delta net's head; layers without key heads are such."""

    rope_type = ROPE_NONE
    ssm_d_conv: int = uint("ssm.conv_kernel", least=1)
    n_embd_head_kda: int = uint("kda.head_dim", least=1)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        n_inner = self.n_head_first * self.n_embd_head_kda
        self.n_embd_r = 3 * (self.ssm_d_conv - 1) * n_inner
        self.n_embd_s = self.n_embd_head_kda * n_inner

    def is_recr(self, il: int) -> bool:
        return il < self.n_layer and self.n_head_kv[il] == 0

    @property
    def kda_sizes(self) -> tuple[int, int, int]:
        """Heads of a delta net, their size, and the width of its convolution."""
        return self.n_head_first, self.n_embd_head_kda, self.ssm_d_conv


def mla(block: Block) -> Block:
    """The block, its result called mla_out."""

    def named(g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        return g.cb(block(g, cur, il), "mla_out", il)

    return named
