"""The gated delta rule: its definition, token by token, and the chunked form used in training.

Arguments are [batch, heads, tokens, state] (q, k, v) and [batch, heads, tokens] (g, beta).
g is the logarithm of the decay, beta the write strength in 0..1. The result is shaped like v.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK = 64
TOLERANCE = 1e-10


def sequential(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """Define the delta rule: decay the memory, move its value at k towards v, read it with q."""
    size = q.shape[-1]
    memory = q.new_zeros(*q.shape[:2], size, size)  # [.., key, value]
    out = []
    for t in range(q.shape[2]):
        key, value, query = k[:, :, t, :, None], v[:, :, t, None, :], q[:, :, t, None, :]
        memory = memory * g[:, :, t, None, None].exp()
        stored = key.transpose(-1, -2) @ memory
        memory = memory + key * (value - stored) * beta[:, :, t, None, None]
        out.append(query @ memory * size**-0.5)
    return torch.cat(out, 2)


def chunked(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """Compute the rule in chunks of 64 tokens: a triangular solve per chunk, a loop over chunks."""
    n_tokens, size = q.shape[2:]
    q, k, v, g, beta = (_to_chunks(x) for x in (q * size**-0.5, k, v, g, beta[..., None]))
    g = g.cumsum(-1)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril()
    decay = (g[..., :, None] - g[..., None, :]).masked_fill(~lower, -math.inf).exp()
    grown = g.exp()[..., None]
    k_beta = k * beta
    system = (k_beta @ k.transpose(-1, -2)) * decay  # its diagonal counts as one
    right = torch.cat([v * beta, k_beta * grown], -1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    new, old = solved.split(size, -1)
    inside = (q @ k.transpose(-1, -2)) * decay
    query = q * grown
    key = (k * (g[..., -1:] - g).exp()[..., None]).transpose(-1, -2)
    last = g[..., -1].exp()[..., None, None]
    memory, out = q.new_zeros(*q.shape[:2], size, size), []
    for i in range(q.shape[2]):
        write = new[:, :, i] - old[:, :, i] @ memory
        out.append(query[:, :, i] @ memory + inside[:, :, i] @ write)
        memory = memory * last[:, :, i] + key[:, :, i] @ write
    return torch.stack(out, 2).flatten(2, 3)[:, :, :n_tokens]


def _to_chunks(x: Tensor) -> Tensor:
    """Return [b, h, tokens, ...] as [b, h, chunks, 64, ...], padded with zeros without effect."""
    padding = [0, 0] * (x.dim() - 3) + [0, -x.shape[2] % CHUNK]
    return F.pad(x, padding).unflatten(2, (-1, CHUNK))


def largest_difference() -> float:
    """Return the largest difference of both variants on 150 random tokens; raise above 1e-10."""
    rng = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(2, 4, 150, *shape, generator=rng, dtype=torch.float64)

    q, k = (F.normalize(random(64), dim=-1) for _ in range(2))
    args = (q, k, random(64), -random().abs(), random().sigmoid())
    difference = (chunked(*args) - sequential(*args)).abs().max().item()
    if difference > TOLERANCE:
        raise ArithmeticError(f"the chunked delta rule is off by {difference:.1e}")
    return difference
