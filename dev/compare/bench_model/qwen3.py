"""qwen3: dense, attention with QK norm, tied output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dev.compare.bench_model.spec import Architecture, TensorSpec, Value, matrix, norm, swiglu


@dataclass(frozen=True)
class Qwen3(Architecture):
    name = "qwen3"
    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int = 128

    def keys(self) -> dict[str, Value]:
        return {
            "context_length": 40960,
            "embedding_length": self.n_embd,
            "block_count": self.n_layer,
            "feed_forward_length": self.n_ff,
            "attention.head_count": self.n_head,
            "attention.head_count_kv": self.n_head_kv,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.freq_base": 1e6,
        }

    def tensors(self, n_vocab: int) -> Iterator[TensorSpec]:
        yield matrix("token_embd", self.n_embd, n_vocab)
        yield norm("output_norm", self.n_embd)
        n_q, n_kv = self.n_head * self.head_dim, self.n_head_kv * self.head_dim
        for p in (f"blk.{i}." for i in range(self.n_layer)):
            yield norm(p + "attn_norm", self.n_embd)
            yield matrix(p + "attn_q", self.n_embd, n_q)
            yield matrix(p + "attn_k", self.n_embd, n_kv)
            yield matrix(p + "attn_v", self.n_embd, n_kv)
            yield norm(p + "attn_q_norm", self.head_dim)
            yield norm(p + "attn_k_norm", self.head_dim)
            yield matrix(p + "attn_output", n_q, self.n_embd)
            yield norm(p + "ffn_norm", self.n_embd)
            yield from swiglu(p, "", self.n_embd, self.n_ff)


SIZES = {
    "0.6b": Qwen3(n_layer=28, n_embd=1024, n_ff=3072, n_head=16, n_head_kv=8),
    "4b": Qwen3(n_layer=36, n_embd=2560, n_ff=9728, n_head=32, n_head_kv=8),
    "20m": Qwen3(n_layer=6, n_embd=512, n_ff=1536, n_head=8, n_head_kv=4),
}
