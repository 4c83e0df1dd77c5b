"""kimi-linear: three delta-attention (KDA) layers per latent-attention (MLA) layer, experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dev.compare.bench_model.spec import (
    Architecture,
    TensorSpec,
    Value,
    convolution,
    decay,
    matrix,
    norm,
    router,
    swiglu,
    time_step,
)


@dataclass(frozen=True)
class KimiLinear(Architecture):
    name = "kimi-linear"
    n_layer: int
    n_embd: int
    n_head: int
    n_expert: int
    n_used: int
    n_ff: int  # FFN size of the dense first layer
    n_ff_expert: int
    head_dim: int = 128  # size of keys and values, KDA and MLA
    kv_lora: int = 512
    rope_dim: int = 64  # the shared part of an MLA key, without RoPE
    d_conv: int = 4
    interval: int = 4

    def keys(self) -> dict[str, Value]:
        return {
            "context_length": 1048576,
            "embedding_length": self.n_embd,
            "block_count": self.n_layer,
            "feed_forward_length": self.n_ff,
            "leading_dense_block_count": 1,
            "attention.head_count": self.n_head,
            "attention.head_count_kv": [int(self._is_mla(i)) for i in range(self.n_layer)],
            "attention.key_length": self.kv_lora + self.rope_dim,
            "attention.value_length": self.kv_lora,
            "attention.key_length_mla": self.head_dim + self.rope_dim,
            "attention.value_length_mla": self.head_dim,
            "attention.kv_lora_rank": self.kv_lora,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.dimension_count": self.rope_dim,
            "expert_count": self.n_expert,
            "expert_used_count": self.n_used,
            "expert_feed_forward_length": self.n_ff_expert,
            "expert_shared_count": 1,
            "expert_gating_func": 2,  # sigmoid
            "expert_weights_scale": 2.446,
            "expert_weights_norm": True,
            "ssm.conv_kernel": self.d_conv,
            "kda.head_dim": self.head_dim,
        }

    def _is_mla(self, layer: int) -> bool:
        return (layer + 1) % self.interval == 0

    def tensors(self, n_vocab: int) -> Iterator[TensorSpec]:
        yield matrix("token_embd", self.n_embd, n_vocab)
        yield norm("output_norm", self.n_embd)
        yield matrix("output", self.n_embd, n_vocab)
        for i in range(self.n_layer):
            p = f"blk.{i}."
            yield norm(p + "attn_norm", self.n_embd)
            yield from self._mla(p) if self._is_mla(i) else self._kda(p)
            yield matrix(p + "attn_output", self.n_head * self.head_dim, self.n_embd)
            yield norm(p + "ffn_norm", self.n_embd)
            yield from swiglu(p, "", self.n_embd, self.n_ff) if i == 0 else self._moe(p)

    def _kda(self, p: str) -> Iterator[TensorSpec]:
        n = self.n_head * self.head_dim
        for part in "qkv":
            yield matrix(f"{p}attn_{part}", self.n_embd, n)
            yield convolution(f"{p}ssm_conv1d_{part}", self.d_conv, 1, n, 1)
        for part in "fg":
            yield matrix(f"{p}ssm_{part}_a", self.n_embd, self.head_dim)
            yield matrix(f"{p}ssm_{part}_b", self.head_dim, n)
        yield matrix(p + "ssm_beta", self.n_embd, self.n_head)
        yield decay(p + "ssm_a", 1, self.n_head, 1, 1)
        yield time_step(p + "ssm_dt", n)
        yield norm(p + "ssm_norm", self.head_dim)

    def _mla(self, p: str) -> Iterator[TensorSpec]:
        yield matrix(p + "attn_q", self.n_embd, self.n_head * (self.head_dim + self.rope_dim))
        yield matrix(p + "attn_kv_a_mqa", self.n_embd, self.kv_lora + self.rope_dim)
        yield norm(p + "attn_kv_a_norm", self.kv_lora)
        yield matrix(p + "attn_k_b", self.head_dim, self.kv_lora, self.n_head)
        yield matrix(p + "attn_v_b", self.kv_lora, self.head_dim, self.n_head)

    def _moe(self, p: str) -> Iterator[TensorSpec]:
        yield router(p + "ffn_gate_inp", self.n_embd, self.n_expert)
        yield TensorSpec(
            p + "exp_probs_b.bias", (self.n_expert,), lambda rng, n: rng.normal(0, 0.02, n)
        )
        yield from swiglu(p, "_exps", self.n_embd, self.n_ff_expert, self.n_expert)
        yield from swiglu(p, "_shexp", self.n_embd, self.n_ff_expert)


SIZES = {
    "0.8b": KimiLinear(
        n_layer=16, n_embd=1024, n_head=8, n_expert=16, n_used=2, n_ff=6144, n_ff_expert=256
    ),
    # The width and heads of the published 48B model in four layers: the cost of its delta nets.
    "wide": KimiLinear(
        n_layer=4, n_embd=2304, n_head=32, n_expert=16, n_used=4, n_ff=4096, n_ff_expert=512
    ),
    "20m": KimiLinear(
        n_layer=4, n_embd=512, n_head=4, n_expert=8, n_used=2, n_ff=1024, n_ff_expert=256
    ),
}
