"""Rebuild the models of llama.cpp's test-llama-archs without running it.

A file has metadata, names and shapes of tensors, and values that depend on a seed and the tensor's
name (tests/test-llama-archs.cpp:set_tensor_data). This module computes the values with C++'s
Mersenne Twister and polar method. A few values differ in the last bit, since the C library's
logarithm rounds differently from NumPy's.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dev.record.golden.runs import batch
from ggml_py.inspection.dump import Record
from ggml_py.tensor import shape4
from ggml_py.types import F32
from llama_py.gguf.file import GGUFFile, TensorInfo

DATA = Path(__file__).parents[3] / "tests" / "data" / "fixture.json.xz"
SEED, DEVIATION = 1234, 0.1
N_VOCAB = 128  # size of the smallest vocabulary
N_TOKENS = 40
EVERY = 5  # logits of every fifth token are stored

Floats = NDArray[np.float32]


def values(name: str, n: int) -> Floats:
    """Compute the values of the tensor with this name."""
    made = _normal(SEED ^ _hash(name), n) * np.float32(DEVIATION)
    return -np.abs(made) if "ssm_a" in name else made


def _normal(seed: int, n: int) -> Floats:
    """Compute std::normal_distribution<float> over std::mt19937 (libstdc++)."""
    one, generator = np.float32(1), np.random.RandomState(seed & 0xFFFFFFFF)
    below, found, n_found = np.nextafter(one, np.float32(0)), list[Floats](), 0
    while n_found < n:
        words = generator.randint(0, 2**32, 2 * max(64, n - n_found), dtype=np.uint32)
        uniform = np.minimum(words.astype(np.float32) / np.float32(2**32), below)
        x, y = (2 * uniform - one).reshape(-1, 2).T
        square = x * x + y * y
        inside = (square <= 1) & (square != 0)
        x, y, square = x[inside], y[inside], square[inside]
        log = np.log(square.astype(np.float64)).astype(np.float32)
        factor = np.sqrt(np.float32(-2) * log / square)
        found.append(np.stack([y * factor, x * factor], 1).reshape(-1))
        n_found += found[-1].size
    return np.concatenate(found)[:n]


def _hash(text: str) -> int:
    """Compute std::hash<std::string> (libstdc++: MurmurHash64A)."""
    factor, mask, data = 0xC6A4A7935BD1E995, 2**64 - 1, text.encode()

    def mixed(v: int) -> int:
        return v ^ (v >> 47)

    found = (0xC70F6907 ^ (len(data) * factor)) & mask
    whole = len(data) // 8 * 8
    for i in range(0, whole, 8):
        word = int.from_bytes(data[i : i + 8], "little")
        found = ((found ^ (mixed(word * factor & mask) * factor & mask)) * factor) & mask
    if data[whole:]:
        found = ((found ^ int.from_bytes(data[whole:], "little")) * factor) & mask
    return mixed(mixed(found) * factor & mask)


@cache
def stored() -> Mapping[str, Mapping[str, Any]]:
    """Return the recorded data by file name: metadata, tensors, node list digests, some logits.

    It also has the number of nodes and the NMSE. `forms` are the block variants of the reference
    llama.cpp, if b11739 uses other variants. With `newest`, the node lists are from b11739.
    """
    found: dict[str, dict[str, Any]] = json.loads(lzma.decompress(DATA.read_bytes()))
    return found


def file_of(name: str, with_values: bool) -> Any:
    """Return a model's data source; without values, its bytes are placeholders."""
    about = stored()[name]

    def info(tensor: str, ne: Sequence[int]) -> TensorInfo:
        n = math.prod(ne)
        empty: NDArray[Any] = np.broadcast_to(np.uint8(0), 4 * n)
        data = values(tensor, n).view(np.uint8) if with_values else empty
        return TensorInfo(tensor, F32, shape4(tuple(ne)), 0, 4 * n, data)

    return SimpleNamespace(
        path=f"{name}.gguf",
        metadata=about["metadata"],
        architecture=about["metadata"]["general.architecture"],
        tensors={tensor: info(tensor, ne) for tensor, ne in about["tensors"].items()},
    )


def described(path: Path) -> dict[str, Any]:
    """Return the data to record from a file that test-llama-archs wrote.

    Raises:
        ValueError: A tensor's values differ from the result of `values`.
    """
    with GGUFFile.open(path) as file:
        for name, t in file.tensors.items():
            there, here = t.data.view(np.float32), values(name, math.prod(t.ne))
            if np.abs(there - here).max() > 1e-7:
                raise ValueError(f"{path}: {name} has values that differ from the recipe")
        return {
            "metadata": {key: plain(value) for key, value in file.metadata.items()},
            "tensors": {name: list(t.ne) for name, t in file.tensors.items()},
        }


def plain(value: Any) -> Any:
    """Return a value with JSON types."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def tokens() -> list[int]:
    return [int(t) for t in np.random.RandomState(SEED).randint(0, N_VOCAB, N_TOKENS)]


def list_nodes(engine: Any, memory: bool) -> list[Record]:
    """Return the nodes of a prompt's graph and, with `memory`, of the next token's graph."""
    engine.run(batch(tokens(), outputs="last" if memory else "all"))
    if memory:
        engine.run(batch([1], first=N_TOKENS))
    nodes: list[Record] = engine.nodes
    return nodes


def logits(engine: Any) -> Floats:
    """Return the logits of every fifth token of the prompt."""
    engine.run(batch(tokens(), outputs="all"))
    return np.array(engine.logits(N_TOKENS)[::EVERY], np.float32)


def digest(nodes: Sequence[Record]) -> str:
    return hashlib.sha256(json.dumps(nodes, sort_keys=True).encode()).hexdigest()


def nmse(expected: NDArray[Any], found: NDArray[Any]) -> float:
    """Return the NMSE without forbidden tokens, which have the smallest float as logit."""
    allowed = np.minimum(expected, found) > -3e38
    a, b = expected[allowed].astype(np.float64), found[allowed].astype(np.float64)
    return float(np.square(a - b).sum() / np.square(a).sum())


def save(models: Mapping[str, Mapping[str, Any]]) -> None:
    text = json.dumps(models, separators=(",", ":"), sort_keys=True).encode()
    DATA.write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))


def names() -> Iterator[str]:
    """Yield the names of files with stored logits."""
    return (name for name, about in stored().items() if "logits" in about)
