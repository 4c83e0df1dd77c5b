"""Falcon-H1: attention and a state space model in parallel in every layer
(models/falcon-h1.cpp).

llama.cpp crashes without a bias of the convolution; here it is optional.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ggml_py.ops import add
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import QKV, Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.mamba import Mamba2Mixer, SSMHParams
from llama_py.gguf.keys import Keys, number
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.memory.specs import KVCacheSpec, MemorySpecs, StateSpec
from llama_py.models.trunks.decoder import Block, BlockSum, LongDecoder
from llama_py.weights import Weights

NAMES = {"mamba_out": "ssm_out"}


class FalconH1HParams(SSMHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)

    def load(self, keys: Keys) -> None:
        self.check_groups(keys)
        super().load(keys)


class FalconH1Attention(Attention):
    parts_keep = KVCacheSpec

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        g.cb(qkv.v, "Vcur-post-rope", il)
        return super().place(g, qkv, il)


@dataclass(slots=True)
class FalconH1Layer:
    """x + attention(norm(x)) + ssm(norm(x)), then x + feed_forward(norm(x))

    both  attention and ssm together, with one sum, if devices share both
    """

    side_by_side: ClassVar = ("attention", "ssm")

    norm: Norm
    attention: Block
    ssm: Block
    ffn_norm: Norm
    feed_forward: Block
    both: BlockSum | None = None

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        both = g.cb(self._attend_and_scan(g, cur, il), "layer_out", il)
        ffn_inp = add(both, cur)
        if last:  # only output rows remain
            ffn_inp = g.outputs(ffn_inp)[0]
        g.cb(ffn_inp, "ffn_inp", il)
        cur = self.feed_forward(g, self.ffn_norm(g, ffn_inp, "ffn_norm", il), il)
        return add(cur, ffn_inp)

    def _attend_and_scan(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        if self.both is not None:
            normed = self.norm(g, cur, "attn_norm", il)
            return self.both(g, normed, self.norm(g, cur, "ssm_in", il), il)
        seen = self.attention(g, self.norm(g, cur, "attn_norm", il), il)
        carried = self.ssm(g, self.norm(g, cur, "ssm_in", il), il)
        return add(seen, carried)


class FalconH1(LongDecoder):
    arch = "falcon-h1"
    HParams = FalconH1HParams
    sizes = {36: "0.5B", 24: "1.5B", 66: "1B", 32: "3B", 44: "7B", 72: "34B"}
    hp: FalconH1HParams
    names = NAMES
    freqs_unread = True

    def layer(self, w: Weights, il: int) -> FalconH1Layer:
        hp, n_embd = self.hp, self.hp.n_embd
        return FalconH1Layer(
            w.norm("attn_norm", n_embd),
            FalconH1Attention(
                w,
                hp,
                out_bias="unread",
                factors=self.factors,
                turned=("Qcur-post-rope", "Kcur-post-rope"),
                name="attn_out",
            ),
            Mamba2Mixer(w, hp, conv_bias=True, normed=False),
            Norm(w.tensor("ffn_norm", n_embd)),  # the file has it without .weight
            FeedForward(w, n_embd, hp.layers[il].n_ff, bias=True, scaled=False),
        )

    def memory_spec(self, il: int) -> MemorySpecs:
        return *super().memory_spec(il), StateSpec(
            self.hp.n_embd_r, self.hp.n_embd_s, *self.hp.state_sections
        )
