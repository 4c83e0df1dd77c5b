"""qwen35moe: three Gated DeltaNet layers per attention layer, experts in every layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dev.compare.bench_model.spec import (
    Architecture,
    TensorSpec,
    Value,
    convolution,
    decay,
    matrix,
    nextn,
    norm,
    router,
    swiglu,
    time_step,
)


@dataclass(frozen=True)
class Qwen35Moe(Architecture):
    name = "qwen35moe"
    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    k_heads: int  # delta net
    v_heads: int
    n_expert: int
    n_used: int
    n_ff: int  # FFN size of an expert
    n_ff_shared: int
    head_dim: int = 256
    d_state: int = 128
    d_conv: int = 4
    interval: int = 4
    n_nextn: int = 0

    def with_nextn(self) -> Qwen35Moe:
        return replace(self, n_nextn=1)

    def keys(self) -> dict[str, Value]:
        drafting: dict[str, Value] = {"nextn_predict_layers": self.n_nextn} if self.n_nextn else {}
        return drafting | {
            "context_length": 262144,
            "embedding_length": self.n_embd,
            "block_count": self.n_layer + self.n_nextn,
            "attention.head_count": self.n_head,
            "attention.head_count_kv": self.n_head_kv,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.freq_base": 1e7,
            "rope.dimension_count": self.head_dim // 4,
            "rope.dimension_sections": [11, 11, 10, 0],
            "expert_count": self.n_expert,
            "expert_used_count": self.n_used,
            "expert_feed_forward_length": self.n_ff,
            "expert_shared_feed_forward_length": self.n_ff_shared,
            "ssm.conv_kernel": self.d_conv,
            "ssm.inner_size": self.d_state * self.v_heads,
            "ssm.state_size": self.d_state,
            "ssm.time_step_rank": self.v_heads,
            "ssm.group_count": self.k_heads,
            "full_attention_interval": self.interval,
        }

    def tensors(self, n_vocab: int) -> Iterator[TensorSpec]:
        yield matrix("token_embd", self.n_embd, n_vocab)
        yield norm("output_norm", self.n_embd)
        yield matrix("output", self.n_embd, n_vocab)
        for i in range(self.n_layer):
            yield from self._layer(f"blk.{i}.", (i + 1) % self.interval == 0)
        for i in range(self.n_layer, self.n_layer + self.n_nextn):
            yield from self._layer(f"blk.{i}.", True)
            yield from nextn(f"blk.{i}.", self.n_embd)

    def _layer(self, p: str, attends: bool) -> Iterator[TensorSpec]:
        yield norm(p + "attn_norm", self.n_embd)
        yield from self._attention(p) if attends else self._delta_net(p)
        yield norm(p + "post_attention_norm", self.n_embd)
        yield router(p + "ffn_gate_inp", self.n_embd, self.n_expert)
        yield from swiglu(p, "_exps", self.n_embd, self.n_ff, self.n_expert)
        yield router(p + "ffn_gate_inp_shexp", self.n_embd)
        yield from swiglu(p, "_shexp", self.n_embd, self.n_ff_shared)

    def _attention(self, p: str) -> Iterator[TensorSpec]:
        n_q, n_kv = self.n_head * self.head_dim, self.n_head_kv * self.head_dim
        yield matrix(p + "attn_q", self.n_embd, 2 * n_q)  # each head: query, then gate
        yield matrix(p + "attn_k", self.n_embd, n_kv)
        yield matrix(p + "attn_v", self.n_embd, n_kv)
        yield norm(p + "attn_q_norm", self.head_dim)
        yield norm(p + "attn_k_norm", self.head_dim)
        yield matrix(p + "attn_output", n_q, self.n_embd)

    def _delta_net(self, p: str) -> Iterator[TensorSpec]:
        n_value = self.d_state * self.v_heads
        n_conv = 2 * self.d_state * self.k_heads + n_value
        yield matrix(p + "attn_qkv", self.n_embd, n_conv)
        yield matrix(p + "attn_gate", self.n_embd, n_value)
        yield convolution(p + "ssm_conv1d", self.d_conv, n_conv)
        yield matrix(p + "ssm_alpha", self.n_embd, self.v_heads)
        yield matrix(p + "ssm_beta", self.n_embd, self.v_heads)
        yield time_step(p + "ssm_dt", self.v_heads)
        yield decay(p + "ssm_a", self.v_heads)
        yield norm(p + "ssm_norm", self.d_state)
        yield matrix(p + "ssm_out", n_value, self.n_embd)


LARGE = Qwen35Moe(
    n_layer=48,
    n_embd=2048,
    n_head=16,
    n_head_kv=2,
    k_heads=16,
    v_heads=32,
    n_expert=512,
    n_used=10,
    n_ff=512,
    n_ff_shared=512,
)
SIZES = {
    "1b": Qwen35Moe(
        n_layer=16,
        n_embd=1024,
        n_head=16,
        n_head_kv=2,
        k_heads=8,
        v_heads=16,
        n_expert=32,
        n_used=4,
        n_ff=256,
        n_ff_shared=256,
    ),
    "20m": Qwen35Moe(
        n_layer=4,
        n_embd=512,
        n_head=4,
        n_head_kv=2,
        k_heads=4,
        v_heads=8,
        n_expert=16,
        n_used=4,
        n_ff=128,
        n_ff_shared=128,
    ),
    "14b": replace(LARGE, n_layer=24, n_expert=192, n_used=8),
    "35b": replace(LARGE, n_layer=40, n_expert=256, n_used=8),
    "80b": LARGE,
    "397b": replace(
        LARGE, n_layer=60, n_embd=4096, n_head=32, v_heads=64, n_ff=1024, n_ff_shared=1024
    ),
}
