"""Check of --check-tensors that every weight is finite (ggml_validate_row_data).

That reads the whole file, in float64: some 50 MB a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llama_py.gguf.file import GGUFFile, TensorInfo

CHUNK = 2**20  # elements checked together


def check_tensors(file: GGUFFile, progress: Callable[[int, int, str], None]) -> None:
    """Raise WeightsError with the tensors that have a NaN or an infinity."""
    from ggml_py.errors import WeightsError

    bad, done = [], 0
    total = sum(info.nbytes for info in file.tensors.values())
    for info in file.tensors.values():
        progress(done, total, info.name)
        n = sum(_bad(info))
        if n:
            bad.append(f"{info.name} ({n} of {prod(info.ne)})")
        done += info.nbytes
    progress(total, total, "")
    if bad:
        more = f" and {len(bad) - 10} more" if len(bad) > 10 else ""
        raise WeightsError(
            f"{file.path}: tensors have values that are not finite: {', '.join(bad[:10])}{more}; "
            "download or convert the file again"
        )


def _bad(info: TensorInfo) -> Iterator[int]:
    """Yield the number of values that are not finite in each chunk."""
    import numpy as np

    from ggml_py.backend import HostBuffer
    from ggml_py.tensor import Tensor
    from ggml_ref.values import load, unreadable

    if unreadable(info.type):
        return
    size = info.type.type_size * (CHUNK // info.type.block_size)
    for start in range(0, info.nbytes, size):
        data = info.data[start : start + size]
        n = data.size // info.type.type_size * info.type.block_size
        t = Tensor(info.type, (n,))
        t.buffer, t.offset = HostBuffer(data), 0
        with np.errstate(all="ignore"):
            values = load(t)
        yield int(values.size - np.isfinite(values).sum()) if values.dtype.kind == "f" else 0
