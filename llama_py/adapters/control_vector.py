"""Control vectors: a direction per layer that is added to the layer's result
(llama-adapter.cpp:llama_adapter_cvec, common.cpp:common_control_vector_load).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt

from ggml_py.backend import Device, set_tensor
from ggml_py.errors import ContextError, GGUFError
from ggml_py.ops import add
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.gguf.file import GGUFFile, TensorInfo
from llama_py.hparams import MAX_LAYERS
from llama_py.memory.base import allocate

Directions = npt.NDArray[np.float32]  # [n_layer - 1 or fewer, n_embd], from layer 1
PREFIX = "direction."


def load_directions(files: Sequence[tuple[str | Path, float]]) -> Directions:
    """Return the sum of the directions of files, each multiplied by its factor.

    Raises GGUFError for other files, or directions that differ in size.
    """
    found: dict[int, Directions] = {}
    for path, factor in files:
        for name, info in GGUFFile.open(path).tensors.items():
            il, values = _layer(path, name), _values(path, info)
            sizes = {v.size for v in found.values()} or {values.size}
            if values.size not in sizes:
                raise GGUFError(
                    f"{path}: tensor {name} must have {sizes.pop()} elements like the others, "
                    f"got {values.size}; create the control vector again"
                )
            with np.errstate(over="ignore", invalid="ignore"):
                found[il] = found.get(il, np.float32(0)) + values * np.float32(factor)
            if not np.isfinite(found[il]).all():
                raise GGUFError(
                    f"{path}: {name} times {factor} is not finite in float32; use a smaller scale"
                )
    if not found:
        names = ", ".join(str(path) for path, _ in files)
        raise GGUFError(
            f"{names}: no tensors {PREFIX}1, {PREFIX}2, ...; use the GGUF file of a control vector"
        )
    directions = np.zeros((max(found), next(iter(found.values())).size), np.float32)
    for il, values in found.items():
        directions[il - 1] = values
    return directions


def _layer(path: str | Path, name: str) -> int:
    number = name.removeprefix(PREFIX)
    if not (name.startswith(PREFIX) and number.isdecimal() and 0 < int(number) < MAX_LAYERS):
        raise GGUFError(
            f"{path}: unknown tensor {name!r}; a control vector has only tensors {PREFIX}1, "
            f"{PREFIX}2, ..."
        )
    return int(number)


def _values(path: str | Path, info: TensorInfo) -> Directions:
    if info.type is not F32 or max(info.ne[1:]) > 1:
        raise GGUFError(
            f"{path}: tensor {info.name} must be f32 of one row, got {info.type} {info.ne}; "
            "create the control vector again"
        )
    return info.data.view(np.float32)


class PlacedDirections:
    """Directions on the devices of their layers. Layer 0 never has one."""

    def __init__(
        self, directions: Directions, devices: Sequence[Device], n_embd: int, layers: range | None
    ) -> None:
        """Place the directions on the devices of their layers; layers: range to apply, None: all.

        Raises ContextError for another n_embd.
        """
        if directions.ndim != 2 or directions.shape[1] != n_embd:
            raise ContextError(
                f"control vector must have shape [n_layer - 1, {n_embd}], got {directions.shape}"
            )
        n = min(len(directions) + 1, len(devices))
        chosen = [il for il in range(1, n) if layers is None or il in layers]
        self._tensors = {il: Tensor(F32, (n_embd,), name=f"{PREFIX}{il}") for il in chosen}
        placed = [(devices[il], t) for il, t in self._tensors.items()]
        self._buffers = allocate("control vector", "llama_adapter_cvec: %10s", placed)
        for il, t in self._tensors.items():
            set_tensor(t, np.ascontiguousarray(directions[il - 1], np.float32))
        self._crc = crc32(directions.astype(np.float32).tobytes(), crc32(repr(chosen).encode()))

    def __repr__(self) -> str:
        return f"<control vector {self._crc:08x}>"

    def add_direction(self, cur: Tensor, il: int) -> Tensor:
        """Add the direction of layer il, if any, to cur [n_embd, n_tokens]."""
        direction = self._tensors.get(il)
        return cur if direction is None else add(cur, direction)
