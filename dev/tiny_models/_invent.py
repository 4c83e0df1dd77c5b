"""Tensors of a tiny model: declared by the model, with values computed from their names."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dev.tiny_models import ALTERNATIVES, Tiny, metadata
from ggml_py.tensor import shape4
from ggml_py.types import F32, I32, I64
from llama_py.gguf.file import TensorInfo
from llama_py.models import architecture
from llama_py.weights import Weights

# The first matching pattern gives (mean, deviation); other tensors are matrices.
KINDS: dict[str, tuple[float, float]] = {
    "*norm*.bias": (0, 0.1),
    "*norm*": (1, 0.1),
    "*.scale": (1, 0.2),
    "*.bias": (0, 0.2),
    "rope_f*": (1.5, 0.3),
    "*.ssm_a": (-0.5, 0.12),
    "*.ssm_d": (1, 0.3),
    "*.attn_sinks.*": (0, 1),
    "token_embd.weight": (0, 1),
}


# Row numbers, all different if their count has no common factor with this.
NUMBERS = ("d2t",)
STEP = 7


class Invented(dict[str, TensorInfo]):
    """Tensors of a tiny model without a file.

    These are all tensors that the model declares to `Weights`, except optional tensors that the
    variant omits. Their bytes are placeholders.
    """

    def __init__(self, tiny: Tiny) -> None:
        super().__init__()
        self.tiny = tiny
        for name, ne in tiny.unread.items():
            self.declare(name, ne, True)

    def declare(self, name: str, ne: tuple[int, ...], needed: bool) -> None:
        """Create the TensorInfo of a tensor that the model declares."""
        if name not in self.keys() and (needed or self.wanted(name)):
            ne4 = shape4(ne)
            type = I64 if name in NUMBERS else I32 if _fits(name, self.tiny.table) else F32
            nbytes = type.type_size * math.prod(ne4)
            data = np.broadcast_to(np.uint8(0), nbytes)
            self[name] = TensorInfo(name, type, ne4, 0, nbytes, data)

    def wanted(self, name: str) -> bool:
        """Return True if an optional tensor is in the file."""
        left_out = (*ALTERNATIVES, *self.tiny.without)
        return _fits(name, self.tiny.keep) or not _fits(name, left_out)

    def __contains__(self, name: object) -> bool:
        """Return True if the model may declare this tensor; it chooses its variant by that."""
        return name in self.keys() or (isinstance(name, str) and self.wanted(name))


def _fits(name: str, patterns: Any) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def shapes(arch: str, tiny: Tiny) -> dict[str, tuple[int, ...]]:
    """Return tensor shapes (ggml's four dimensions) by name, in order."""
    infos, kind = Invented(tiny), architecture(arch)
    hp = kind.HParams(metadata(arch, tiny), arch)
    kind(hp, Weights(infos, f"tiny {arch}"), load_mtp=True)
    return {name: infos[name].ne for name in sorted(infos.keys())}


def values(tiny: Tiny, name: str, ne: tuple[int, ...]) -> NDArray[Any]:
    """Return flat random values from the tensor's name: sums of four 16-bit numbers, nearly normal.

    Bits of a counter-based generator and IEEE's four operations give the same on every machine.
    """
    n = math.prod(ne)
    if name in NUMBERS:
        return np.arange(n, dtype=np.int64) * STEP % tiny.n_vocab
    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
    below = next((n for p, n in tiny.table.items() if fnmatchcase(name, p)), 0)
    if below:
        order = np.random.Philox(key=key).random_raw(n // ne[0] * below).reshape(-1, below)
        return np.asarray(order.argsort(1, kind="stable")[:, : ne[0]].reshape(-1), np.int32)
    raw = np.random.Philox(key=key).random_raw(n).view(np.uint16).reshape(n, 4)
    x = (raw.sum(1, dtype=np.int64) - 2 * 65535) / math.sqrt((65536**2 - 1) / 3)
    fallback = (0.0, 1 / math.sqrt(ne[0]))
    mean, deviation = next((v for p, v in KINDS.items() if fnmatchcase(name, p)), fallback)
    mean = next((v for p, v in tiny.mean.items() if fnmatchcase(name, p)), mean)
    gain = math.prod(v for p, v in tiny.gain.items() if fnmatchcase(name, p))
    return np.asarray(mean + deviation * gain * x, np.float32)


def tensors(arch: str, tiny: Tiny) -> Mapping[str, NDArray[Any]]:
    """Return all tensors as arrays in reversed (NumPy's) order of dimensions."""
    return {
        name: values(tiny, name, ne).reshape(ne[::-1]) for name, ne in shapes(arch, tiny).items()
    }
