"""Tiny models with random weights in which every branch matters, for tests that compute."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggml_py.registry import device
from ggml_py.types import F32
from llama_py.gguf_file import TensorInfo
from llama_py.models import load_model
from llama_py.models._base import Model
from tests.graph_models import recorded

N_VOCAB = 128


def values(name: str, ne: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
    """Weights that keep activations near one, decays slow and gates open."""
    x = rng.standard_normal(int(np.prod(ne)))
    if "norm" in name or name.endswith("scale") or name == "rope_freqs.weight":
        x = 1 + 0.1 * x
    elif name.endswith("ssm_a"):
        x = -np.exp(0.5 * x - 2)
    elif ne[1] > 1:
        x = x / np.sqrt(ne[0]) * (3 if "ssm" in name or "attn" in name else 1)
    return x.astype(np.float32)


def tensor(name: str, ne: list[int], rng: np.random.Generator) -> TensorInfo:
    ne4 = (*ne, 1, 1, 1, 1)[:4]
    data = values(name, ne4, rng).view(np.uint8)
    return TensorInfo(name, F32, ne4, 0, data.size, data)


@cache
def live(name: str, on: str = "ref") -> Model:
    """The model `name` of tests/data/graphs on a device, the same weights each time."""
    metadata, shapes = recorded(name)
    rng = np.random.default_rng(7)
    file: Any = SimpleNamespace(
        path=f"{name}.gguf",
        metadata=metadata,
        architecture=metadata["general.architecture"],
        tensors={k: tensor(k, ne, rng) for k, ne in shapes.items()},
    )
    return load_model(file, device(on))


def tokens(n: int, seed: int = 0) -> list[int]:
    """n random token ids."""
    return [int(t) for t in np.random.default_rng(seed).integers(0, N_VOCAB, n)]


def nmse(expected: NDArray[Any], found: NDArray[Any]) -> float:
    """Mean squared error over mean square."""
    return float(np.square(expected - found).sum() / np.square(expected).sum())
