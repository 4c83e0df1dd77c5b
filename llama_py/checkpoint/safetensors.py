"""Reader of untrusted safetensors files: names, types, shapes and bytes, from a memory map.

A file is: the header's length (8 bytes), the header (JSON: name to dtype, shape, data_offsets),
the data. Source: https://github.com/huggingface/safetensors, "Format". That library reads whole
files, and no BF16 or FP8 without torch.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ModelError
from llama_py.gguf.pages import release_pages

MAX_HEADER = 100_000_000  # bytes, the limit of the safetensors library
MAX_DIMS = 8
DAMAGED = "download the file again"
DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(stored)
    for name, stored in {
        "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4",
        "I32": "<i4", "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
        "BF16": "<u2", "F8_E4M3": "u1", "F8_E5M2": "u1", "F8_E8M0": "u1",
    }.items()
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A tensor of a file.

    dtype   its name in the file
    shape   in the order of torch: the last dimension is contiguous
    data    read-only view of the mapped bytes, [n_bytes]
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    data: npt.NDArray[np.uint8] = field(repr=False)
    mapped: mmap.mmap = field(repr=False)

    def array(self) -> npt.NDArray[Any]:
        """Return a view of its elements; BF16 and FP8 as unsigned integers."""
        return self.data.view(DTYPES[self.dtype]).reshape(self.shape)

    def let_go(self) -> None:
        """Release memory of the mapped bytes."""
        release_pages(self.mapped, self.offset, self.offset + self.data.nbytes)


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """Map a file and return its tensors by name, in the order of the header.

    Raises ModelError (path, problem, remedy) for an invalid file.
    """
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as e:  # ValueError: the file is empty
        raise ModelError(f"{path}: cannot be read: {e}; {DAMAGED}") from None
    header, start = _header(path, mapped)
    data = np.frombuffer(mapped, np.uint8)
    tensors = dict[str, StoredTensor]()
    for name, entry in header.items():
        if name != "__metadata__":
            dtype, shape, first, last = _entry(path, name, entry, len(mapped) - start)
            view = data[start + first : start + last]
            tensors[name] = StoredTensor(name, dtype, shape, start + first, view, mapped)
    _check_overlap(path, tensors)
    return tensors


def _header(path: Path, mapped: mmap.mmap) -> tuple[dict[str, Any], int]:
    """Return the header, and the position of the data."""
    n = int.from_bytes(mapped[:8], "little")
    if len(mapped) < 8 or n > min(MAX_HEADER, len(mapped) - 8):
        most = min(MAX_HEADER, max(len(mapped) - 8, 0))
        raise ModelError(
            f"{path}: not a safetensors file: its header must have at most {most} bytes, got {n}; "
            f"{DAMAGED}"
        )
    try:
        header = json.loads(mapped[8 : 8 + n].decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as e:
        what = str(e) or type(e).__name__
        raise ModelError(f"{path}: its header is not valid JSON: {what}; {DAMAGED}") from None
    if not isinstance(header, dict):
        raise ModelError(f"{path}: its header must be a JSON object; {DAMAGED}")
    return header, 8 + n


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _entry(path: Path, name: str, entry: Any, n_data: int) -> tuple[str, tuple[int, ...], int, int]:
    """Return dtype, shape, and begin and end of a tensor in the data."""
    where = f"{path}: tensor {name[:100]!r}"
    try:
        dtype, shape, (first, last) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise ModelError(f"{where} lacks dtype, shape or data_offsets; {DAMAGED}") from None
    if not isinstance(dtype, str) or dtype not in DTYPES:
        known = ", ".join(DTYPES)
        raise ModelError(f"{where}: dtype must be {known}, got {str(dtype)[:20]!r}")
    if not (isinstance(shape, list) and len(shape) <= MAX_DIMS and all(map(_is_size, shape))):
        raise ModelError(f"{where}: shape must be at most {MAX_DIMS} sizes; {DAMAGED}")
    n_bytes = math.prod(shape) * DTYPES[dtype].itemsize
    if not (_is_size(first) and _is_size(last) and last <= n_data and last - first == n_bytes):
        raise ModelError(
            f"{where} of {n_bytes} bytes must be within the file's {n_data} bytes of data, got "
            f"data_offsets {str(first)[:20]} to {str(last)[:20]}; {DAMAGED}"
        )
    return dtype, tuple(shape), first, last


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _check_overlap(path: Path, tensors: Mapping[str, StoredTensor]) -> None:
    end, before = 0, ""
    for t in sorted(tensors.values(), key=lambda t: t.offset):
        if t.offset < end and t.data.nbytes:
            raise ModelError(f"{path}: tensors {before!r} and {t.name!r} overlap; {DAMAGED}")
        end, before = max(end, t.offset + t.data.nbytes), t.name
