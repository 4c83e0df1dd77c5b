"""gemma3: five sliding-window layers per full one, two more norms, tied output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dev.compare.bench_model.spec import Architecture, TensorSpec, Value, matrix, norm, swiglu


@dataclass(frozen=True)
class Gemma3(Architecture):
    name = "gemma3"
    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int = 256
    window: int = 512

    def keys(self) -> dict[str, Value]:
        return {
            "context_length": 32768,
            "embedding_length": self.n_embd,
            "block_count": self.n_layer,
            "feed_forward_length": self.n_ff,
            "attention.head_count": self.n_head,
            "attention.head_count_kv": self.n_head_kv,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.sliding_window": self.window,
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
            yield norm(p + "post_attention_norm", self.n_embd)
            yield norm(p + "ffn_norm", self.n_embd)
            yield from swiglu(p, "", self.n_embd, self.n_ff)
            yield norm(p + "post_ffw_norm", self.n_embd)


SIZES = {"1b": Gemma3(n_layer=26, n_embd=1152, n_ff=6912, n_head=4, n_head_kv=1)}
