"""PLaMo 2: state space models with normed dt, B and C, every other layer attention; norms before
and after each block (models/plamo2.cpp).

llama.cpp mixes the tokens of several sequences that are decoded together; here each has its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llama_py.blocks.activation import SWIGLU
from llama_py.blocks.attention import Attention, Projections
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.functions import inv_sqrt
from llama_py.blocks.mamba import SSMHParams
from llama_py.gguf.keys import Keys, number, uint
from llama_py.graph.linear import Norm
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.hparams.shard import Shard
from llama_py.models.trunks.decoder import Block, Decoder, Layer
from llama_py.models.trunks.hybrid import MixedHParams
from llama_py.models.trunks.mamba_heads import MambaHeads
from llama_py.weights import Weights

if TYPE_CHECKING:
    from typing_extensions import Self

NAMES = {
    "embd": "embedding_output",
    "ffn_inp": "attn_residual",
    "ffn_norm": "ffn_pre_norm",
    "l_out": "ffn_residual",
}


class Plamo2HParams(MixedHParams, SSMHParams):
    """Hyperparameters; ssm_dt_rank: number of state space heads."""

    rope_type = ROPE_NEOX
    required_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    ssm_n_group: int = uint("ssm.group_count", most=0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.attention_scale = inv_sqrt(self.n_embd_head_v)
        if self.ssm_d_inner % self.ssm_dt_rank:
            raise keys.error("ssm.time_step_rank", f"must divide inner_size = {self.ssm_d_inner}")

    def shared(self, share: Shard) -> Self:
        """Return the share of attention heads and of state space heads."""
        hp, size = super().shared(share), self.ssm_d_inner // self.ssm_dt_rank
        hp.ssm_dt_rank = share.count_own(self.ssm_dt_rank, size, "ssm_out", "ssm_x")
        hp.ssm_d_inner = hp.ssm_dt_rank * size
        hp._derive()
        return hp


class Plamo2(Decoder):
    arch = "plamo2"
    HParams = Plamo2HParams
    hp: Plamo2HParams
    names = NAMES | {"attn_norm": ""}
    sizes = {16: "1B", (32, 2048): "2B", (32, 4096): "8B"}

    def layer(self, w: Weights, il: int) -> Layer:
        n_embd, n_ff = self.hp.n_embd, self.hp.layers[il].n_ff
        recurrent = self.hp.layers[il].recurrent
        return Layer(
            w.norm("attn_norm", n_embd),
            MambaHeads(w, self.hp, max(64, n_embd // 16)) if recurrent else self.attention(w, il),
            w.norm("ffn_norm", n_embd),
            FeedForward(w, n_embd, n_ff, act=SWIGLU, scaled=False),
            Norm(w.tensor("post_attention_norm", n_embd)),
            Norm(w.tensor("post_ffw_norm", n_embd)),
            post_ffn_il=(True, True),
        )

    def attention(self, w: Weights, il: int) -> Block:
        shape = self.hp.layers[il]
        d = shape.n_embd_head_k
        return Attention(
            w,
            self.hp,
            qkv=Projections(w, self.hp.n_embd, shape, bias=False, scaled=False, joined=True),
            norms=(
                w.norm("attn_q_norm", d, shape.n_head),
                w.norm("attn_k_norm", d, shape.n_head_kv),
            ),
            turned=("", ""),
            name="attn_out",
        )
