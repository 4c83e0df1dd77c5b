"""The network, with the same parameters as a `qwen35moe` GGUF file.

Three Gated DeltaNet layers and one full-attention layer, each with a mixture of experts and a
gated shared expert. One NextN (MTP) layer drafts the next token. Two differences from the file are
undone in export.py: ssm_a = -exp(A_log), and fused gate/up projections.

The order in which parameters are created and registered determines their random values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dev.make.demo_model import delta


@dataclass(frozen=True)
class Config:
    """Sizes; layer i is full attention when (i + 1) % interval == 0."""

    n_vocab: int = 2048
    n_embd: int = 256
    n_layer: int = 4
    interval: int = 4
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 64
    rope_dim: int = 32  # rotated channels of a head, in pairs (i, i + 16)
    rope_sections: tuple[int, ...] = (6, 5, 5, 0)  # all 16 pairs: on text this is plain RoPE
    rope_base: float = 10000.0
    d_state: int = 64  # delta net: key size = value size
    k_heads: int = 2
    v_heads: int = 4
    d_conv: int = 4
    n_expert: int = 4
    n_used: int = 2
    ff_expert: int = 256
    ff_shared: int = 256
    eps: float = 1e-6
    n_ctx: int = 1024  # the context length written into the file
    dropout: float = 0.3

    @property
    def residual_gain(self) -> float:
        """Initial gain of matrices that write into the residual stream."""
        return 0.5 / math.sqrt(2 * self.n_layer)


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension."""

    def __init__(self, n: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def linear(n_in: int, n_out: int, gain: float = 0.5) -> nn.Linear:
    """Return a matrix without bias, normal with standard deviation gain / sqrt(n_in)."""
    layer = nn.Linear(n_in, n_out, bias=False)
    nn.init.normal_(layer.weight, std=gain * n_in**-0.5)
    return layer


class DeltaNet(nn.Module):
    """Linear attention: short causal convolution, gated delta rule, gated RMS norm."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c, self.key, self.val = c, c.d_state * c.k_heads, c.d_state * c.v_heads
        n_conv = 2 * self.key + self.val
        self.qkv, self.gate = linear(c.n_embd, n_conv), linear(c.n_embd, self.val)
        self.alpha, self.beta = linear(c.n_embd, c.v_heads), linear(c.n_embd, c.v_heads)
        self.conv = nn.Parameter(torch.empty(n_conv, c.d_conv).uniform_(-0.5, 0.5))
        dt = torch.exp(torch.rand(c.v_heads) * math.log(100) + math.log(1e-3))
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))  # softplus(dt_bias) = dt
        self.A_log = nn.Parameter(torch.empty(c.v_heads).uniform_(1, 16).log())
        self.norm = RMSNorm(c.d_state, c.eps)
        self.out = linear(self.val, c.n_embd, c.residual_gain)

    def forward(self, x: Tensor) -> Tensor:
        c = self.c
        q, k, v = (
            t.unflatten(-1, (-1, c.d_state)).transpose(1, 2)
            for t in self.convolve(self.qkv(x)).split([self.key, self.key, self.val], -1)
        )
        repeat = c.v_heads // c.k_heads  # value head h reads key head h % k_heads
        q, k = (self.unit(t).repeat(1, repeat, 1, 1) for t in (q, k))
        g = -self.A_log.exp() * F.softplus(self.alpha(x) + self.dt_bias)
        beta = torch.sigmoid(self.beta(x))
        o = delta.chunked(q, k, v, g.transpose(1, 2), beta.transpose(1, 2)).transpose(1, 2)
        return self.out((self.norm(o) * F.silu(self.gate(x).view(o.shape))).flatten(2))

    def convolve(self, y: Tensor) -> Tensor:
        """Convolve each channel of [batch, tokens, channels] over d_conv inputs; apply SiLU."""
        n_tokens, width = y.shape[1], self.c.d_conv
        y = F.pad(y, (0, 0, width - 1, 0))
        return F.silu(sum(y[:, j : j + n_tokens] * self.conv[:, j] for j in range(width)))

    def unit(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + self.c.eps)


class Attention(nn.Module):
    """Full attention with QK norm, partial RoPE and a sigmoid gate on its output."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        n_kv = c.n_head_kv * c.head_dim
        self.q = linear(c.n_embd, c.n_head * c.head_dim * 2)  # per head: query, then gate
        self.k, self.v = linear(c.n_embd, n_kv), linear(c.n_embd, n_kv)
        self.q_norm, self.k_norm = RMSNorm(c.head_dim, c.eps), RMSNorm(c.head_dim, c.eps)
        self.out = linear(c.n_head * c.head_dim, c.n_embd, c.residual_gain)

    def forward(self, x: Tensor) -> Tensor:
        c, (batch, n_tokens, _) = self.c, x.shape
        q, gate = self.q(x).view(batch, n_tokens, c.n_head, 2 * c.head_dim).split(c.head_dim, -1)
        k, v = (m(x).view(batch, n_tokens, c.n_head_kv, c.head_dim) for m in (self.k, self.v))
        q = self.rope(self.q_norm(q)).transpose(1, 2)
        k = self.rope(self.k_norm(k)).transpose(1, 2)
        repeat = c.n_head // c.n_head_kv  # query head h reads kv head h // repeat
        k, v = (t.repeat_interleave(repeat, 1) for t in (k, v.transpose(1, 2)))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return self.out((o * torch.sigmoid(gate)).flatten(2))

    def rope(self, x: Tensor) -> Tensor:
        """Rotate the first rope_dim channels of [batch, tokens, heads, head_dim] by position."""
        half = self.c.rope_dim // 2
        speed = self.c.rope_base ** (-torch.arange(half) / half)
        angle = torch.arange(x.shape[1])[:, None] * speed
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        a, b, rest = x.split([half, half, self.c.head_dim - 2 * half], -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1)


class MoE(nn.Module):
    """The best two of four experts, weights renormalised, plus a gated shared expert.

    After a call `balance` is the load-balance loss (1 when even) and `load` each expert's share.
    """

    balance: Tensor
    load: Tensor

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c, std = c, c.residual_gain
        self.router = linear(c.n_embd, c.n_expert)
        gate_up = torch.randn(c.n_expert, 2 * c.ff_expert, c.n_embd)
        self.gate_up = nn.Parameter(gate_up * 0.5 * c.n_embd**-0.5)
        down = torch.randn(c.n_expert, c.n_embd, c.ff_expert)
        self.down = nn.Parameter(down * std * c.ff_expert**-0.5)
        self.sh_gate_up = linear(c.n_embd, 2 * c.ff_shared)
        self.sh_down = linear(c.ff_shared, c.n_embd, std)
        self.sh_gate = linear(c.n_embd, 1)

    def forward(self, x: Tensor) -> Tensor:
        c, shape = self.c, x.shape
        x = x.reshape(-1, c.n_embd)
        probs = self.router(x).softmax(-1)
        weights, ids = probs.topk(c.n_used, -1)
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=2**-14)
        gate, up = self.sh_gate_up(x).chunk(2, -1)
        out = self.sh_down(F.silu(gate) * up) * torch.sigmoid(self.sh_gate(x))
        for e in range(c.n_expert):
            token, slot = (ids == e).nonzero(as_tuple=True)
            gate, up = F.linear(x[token], self.gate_up[e]).chunk(2, -1)
            y = F.linear(F.silu(gate) * up, self.down[e])
            out = out.index_add(0, token, y * weights[token, slot, None])
        share = F.one_hot(ids, c.n_expert).float().mean((0, 1))
        self.balance = c.n_expert * (share * probs.mean(0)).sum()
        self.load = share.detach()
        return out.view(shape)


class Block(nn.Module):
    """Pre-norm residual layer: a mixer (delta net or attention), then the mixture of experts."""

    def __init__(self, c: Config, recurrent: bool) -> None:
        super().__init__()
        self.attn_norm, self.ffn_norm = RMSNorm(c.n_embd, c.eps), RMSNorm(c.n_embd, c.eps)
        self.mixer = DeltaNet(c) if recurrent else Attention(c)
        self.moe = MoE(c)
        self.drop = nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.mixer(self.attn_norm(x)))
        return x + self.drop(self.moe(self.ffn_norm(x)))


class NextN(nn.Module):
    """The MTP layer: from a token and the trunk's state one token earlier to the next token.

    At index t its inputs are the embedding of token t and the trunk's normed state of t - 1 (zeros
    at the start). Like in llama.cpp's drafting, the trunk has not processed token t.
    """

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.block = Block(c, recurrent=False)
        self.enorm, self.hnorm, self.norm = (RMSNorm(c.n_embd, c.eps) for _ in range(3))
        self.eh_proj = linear(2 * c.n_embd, c.n_embd, 1.0)

    def forward(self, embd: Tensor, hidden: Tensor) -> Tensor:
        previous = F.pad(hidden[:, :-1], (0, 0, 1, 0))
        both = torch.cat([self.enorm(embd), self.hnorm(previous)], -1)
        return self.norm(self.block(self.eh_proj(both)))


class Model(nn.Module):
    """Trunk and MTP layer; the embedding matrix is also the output matrix."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        self.embd = nn.Embedding(c.n_vocab, c.n_embd)
        nn.init.normal_(self.embd.weight, std=0.02)
        recurrent = [(i + 1) % c.interval != 0 for i in range(c.n_layer)]
        self.blocks = nn.ModuleList(Block(c, r) for r in recurrent)
        self.out_norm = RMSNorm(c.n_embd, c.eps)
        self.mtp = NextN(c)
        self.drop = nn.Dropout(c.dropout)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return trunk and MTP logits, both [batch, tokens, n_vocab], for ids [batch, tokens].

        Both rows at index t predict token t + 1.
        """
        embd = self.embd(ids)
        x = self.drop(embd)
        for block in self.blocks:
            x = block(x)
        hidden = self.out_norm(x)
        draft = self.mtp(self.drop(embd), hidden)
        return F.linear(hidden, self.embd.weight), F.linear(draft, self.embd.weight)

    def moes(self) -> list[MoE]:
        """Return every mixture of experts, the MTP layer's last."""
        return [m for m in self.modules() if isinstance(m, MoE)]
