"""Models of llama.cpp's newest architectures. llama-py's model declares the tensors."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dev.compare.bench_model.spec import Architecture, TensorSpec, Value
from dev.tiny_models import Tiny
from dev.tiny_models._invent import shapes, values
from llama_py.models import architecture_name

WIDTH, N_LAYER = 1024, 16
EXACT = "inp", "conv", "norm"  # parts of names of matrices in F32
ATTENTION: dict[str, Value] = {
    "context_length": 40960,
    "embedding_length": WIDTH,
    "block_count": N_LAYER,
    "feed_forward_length": 3 * WIDTH,
    "attention.head_count": 16,
    "attention.head_count_kv": 8,
    "attention.key_length": 64,
    "attention.value_length": 64,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 1e6,
}
EXPERTS: dict[str, Value] = {
    "expert_count": 32,
    "expert_used_count": 4,
    "expert_feed_forward_length": 512,
}
WINDOWS: dict[str, Value] = {
    "attention.sliding_window": 512,
    "attention.sliding_window_pattern": [True, True, True, False] * 4,
}


@dataclass(frozen=True)
class Newest(Architecture):
    """An architecture at one size; `sizes` is its metadata."""

    name: str
    n_layer: int
    n_embd: int
    sizes: Mapping[str, Value]

    def keys(self) -> dict[str, Value]:
        return dict(self.sizes)

    def tensors(self, n_vocab: int) -> Iterator[TensorSpec]:
        tiny = Tiny(keys={**self.sizes, "vocab_size": n_vocab})
        for name, ne4 in shapes(self.name, tiny).items():
            n_dims = max((i for i, n in enumerate(ne4, 1) if n > 1), default=1)
            is_matrix = n_dims > 1 and not any(part in name for part in EXACT)
            made = None if is_matrix else partial(_values, tiny, name, ne4)
            yield TensorSpec(name, ne4[:n_dims], made)


def _values(
    tiny: Tiny, name: str, ne: tuple[int, ...], rng: np.random.Generator, n: int
) -> NDArray[np.floating]:
    return values(tiny, name, ne)


def newest(module: str, *parts: Mapping[str, Value]) -> dict[str, Architecture]:
    """Return the sizes of the architecture of a module, with metadata in addition to ATTENTION."""
    name = architecture_name(module.rpartition(".")[2])
    values = dict(ChainMap(*map(dict, reversed(parts)), ATTENTION))
    return {"1b": Newest(name, N_LAYER, WIDTH, values)}
