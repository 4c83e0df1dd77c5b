"""Content of a model file before a type is chosen: metadata and named tensors."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Value = str | bool | int | float | list[str] | list[int] | list[float]
Values = Callable[[np.random.Generator, int], NDArray[np.floating]]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of shape `ne` (ggml order). `values` makes its F32 numbers; None: a matrix, which is
    stored in the type of the file with standard deviation 1 / sqrt(ne[0])."""

    name: str
    ne: tuple[int, ...]
    values: Values | None = None

    @property
    def n_elements(self) -> int:
        return math.prod(self.ne)

    @property
    def std(self) -> float:
        return self.ne[0] ** -0.5


class Architecture(ABC):
    """One architecture at one size; a subclass is a dataclass of sizes."""

    name: str
    n_layer: int
    n_embd: int

    @abstractmethod
    def keys(self) -> dict[str, Value]:
        """Return the metadata without the `<architecture>.` prefix."""

    @abstractmethod
    def tensors(self, n_vocab: int) -> Iterator[TensorSpec]:
        """Yield every tensor, in the order of the file."""

    @property
    def n_gqa(self) -> int:
        """Return the query heads per key head in the first layer; 0 without key heads
        (llama-hparams.cpp:n_gqa)."""
        n_head, n_head_kv = (self.keys()[f"attention.head_count{kv}"] for kv in ("", "_kv"))
        first = n_head_kv[0] if isinstance(n_head_kv, list) else n_head_kv
        assert isinstance(n_head, int)
        assert isinstance(first, int)
        return n_head // first if first else 0

    def with_nextn(self) -> Architecture:
        """Return the architecture with a NextN layer at the end; ValueError if unsupported."""
        raise ValueError(f"{self.name} has no NextN layer; give another --arch or no --nextn")


def matrix(name: str, *ne: int) -> TensorSpec:
    return TensorSpec(f"{name}.weight", ne)


def norm(name: str, n: int) -> TensorSpec:
    """Return norm weights around 1."""
    return TensorSpec(f"{name}.weight", (n,), lambda rng, n: rng.normal(1.0, 0.1, n))


def router(name: str, n_embd: int, *n_expert: int) -> TensorSpec:
    """Return an F32 matrix (or, without n_expert, a vector) for logits of about unit size."""
    std = n_embd**-0.5
    return TensorSpec(f"{name}.weight", (n_embd, *n_expert), lambda rng, n: rng.normal(0, std, n))


def convolution(name: str, *ne: int) -> TensorSpec:
    return TensorSpec(f"{name}.weight", ne, lambda rng, n: rng.uniform(-0.5, 0.5, n))


def decay(name: str, *ne: int) -> TensorSpec:
    """Return ssm_a = -exp(A_log), exp(A_log) uniform in 1..16, like delta nets' initial values."""
    return TensorSpec(name, ne, lambda rng, n: -rng.uniform(1, 16, n))


def time_step(name: str, n: int) -> TensorSpec:
    """Return a dt bias whose softplus is log-uniform in 0.001..0.1."""

    def values(rng: np.random.Generator, n: int) -> NDArray[np.floating]:
        dt = np.exp(rng.uniform(math.log(1e-3), math.log(1e-1), n))
        return dt + np.log(-np.expm1(-dt))

    return TensorSpec(f"{name}.bias", (n,), values)


def nextn(p: str, n_embd: int) -> list[TensorSpec]:
    """Return a NextN layer's tensors without its blocks, embeddings and head."""
    return [
        matrix(p + "nextn.eh_proj", 2 * n_embd, n_embd),
        *(norm(f"{p}nextn.{part}", n_embd) for part in ("enorm", "hnorm", "shared_head_norm")),
    ]


def swiglu(prefix: str, suffix: str, n_embd: int, n_ff: int, *n_expert: int) -> list[TensorSpec]:
    """Return the three matrices of a feed-forward network, per expert with n_expert."""
    return [
        matrix(f"{prefix}ffn_gate{suffix}", n_embd, n_ff, *n_expert),
        matrix(f"{prefix}ffn_up{suffix}", n_embd, n_ff, *n_expert),
        matrix(f"{prefix}ffn_down{suffix}", n_ff, n_embd, *n_expert),
    ]
