"""Quantization of a tensor: groups of rows, on all threads, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import numpy as np
import numpy.typing as npt

from ggml_py.backend import QuantizesRows
from ggml_py.backend.registry import devices
from ggml_py.errors import BackendError, GGUFError
from ggml_py.types import BF16, F16, F32, GGMLType
from llama_py.gguf.values import row_reader
from llama_py.quantize.imatrix.file import Imatrix
from llama_py.quantize.plan import TensorJob

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

ELEMENTS = 1 << 18  # elements of a piece, unless a row has more


class RowWorkers:
    """Threads that make the bytes of tensors; a few pieces for each are in memory at a time."""

    def __init__(self, n_threads: int, imatrix: Imatrix | None) -> None:
        self.imatrix = imatrix
        self.ahead = 2 * n_threads
        self.pool = ThreadPoolExecutor(n_threads, "quantize")

    def __enter__(self) -> RowWorkers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)

    def convert(self, job: TensorJob) -> Iterator[tuple[memoryview, int]]:
        """Yield the bytes of a tensor in order, each with the number of source bytes it needed."""
        if job.copies:
            raw = job.source.as_stored().data
            step = 4 * ELEMENTS
            for i in range(0, len(raw), step):
                piece = raw[i : i + step]
                yield piece.data, len(piece)
            return
        waiting = deque[tuple[Future[Bytes], int]]()
        for task, size in self._tasks(job):
            waiting.append((self.pool.submit(task), size))
            if len(waiting) > self.ahead:
                first, n_read = waiting.popleft()
                yield first.result().data, n_read
        for future, n_read in waiting:
            yield future.result().data, n_read

    def read(self, job: TensorJob) -> Bytes:
        """Return all bytes of a tensor."""
        made, at = np.empty(job.target_info.nbytes, np.uint8), 0
        for piece, _ in self.convert(job):
            made[at : at + len(piece)] = piece
            at += len(piece)
        return made

    def _tasks(self, job: TensorJob) -> Iterator[tuple[Callable[[], Bytes], int]]:
        """Yield tasks for rows of one matrix each, since each matrix has its own importance."""
        t = job.source
        n, per_matrix = t.ne[0], t.ne[1]
        importance = self._importance(job)
        from_rows, to_blocks = row_reader(t.type), writer(job.type, importance is not None)
        size, step = t.type.row_size(n), max(1, ELEMENTS // n)
        rows = t.data.reshape(-1, size)
        for matrix in range(t.ne[2] * t.ne[3]):
            weights = None if importance is None else importance[matrix % t.ne[2]]
            for i in range(0, per_matrix, step):
                at = matrix * per_matrix + i
                piece = rows[at : at + min(step, per_matrix - i)]

                def task(piece: Bytes = piece, weights: Floats | None = weights) -> Bytes:
                    x = from_rows(piece, n)
                    _check(t.name, x)
                    return to_blocks(x, weights).reshape(-1)

                yield task, piece.nbytes

    def _importance(self, job: TensorJob) -> Floats | None:
        """Return the importance [n_matrices, n_per_row]; None if it is missing or of another
        shape."""
        found = self.imatrix.weights(job.source.name) if self.imatrix else None
        n = job.source.ne[0] * job.source.ne[2]
        if found is None or found.size != n or not job.type.is_quantized:
            return None
        return found.reshape(job.source.ne[2], job.source.ne[0])


def _check(name: str, x: Floats) -> None:
    if not np.isfinite(x).all():
        raise GGUFError(f"{name} has values that are not finite; convert the model again")


def writer(type: GGMLType, weighted: bool) -> Callable[[Floats, Floats | None], Bytes]:
    """Return a function from values [n_rows, n_per_row] to bytes."""
    if type == F32:
        return lambda x, _: np.ascontiguousarray(x).view(np.uint8)
    if type == F16:
        return lambda x, _: _halves(x).view(np.uint8)
    if type == BF16:
        return lambda x, _: _bf16(x).view(np.uint8)
    for device in devices("cpu"):
        if isinstance(device, QuantizesRows):
            return device.row_quantizer(type, weighted)
    raise BackendError("quantize: the backend cpu cannot quantize; repair the installation")


def _halves(x: Floats) -> npt.NDArray[np.float16]:
    with np.errstate(over="ignore"):
        return x.astype(np.float16)


def _bf16(x: Floats) -> npt.NDArray[np.uint16]:
    """Round to BF16, ties to even (ggml-impl.h:ggml_compute_fp32_to_bf16)."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
