"""Errors of tensors in other types: squared differences of weights, by their importance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from ggml_py.machine.host import logical_cpus
from ggml_py.types import BY_NAME, GGMLType
from llama_py.gguf.file import TensorInfo
from llama_py.gguf.forms import FORMS, file_size
from llama_py.gguf.values import row_reader
from llama_py.quantize.allowed import WANT_IMATRIX
from llama_py.quantize.imatrix.file import Imatrix
from llama_py.quantize.rows import writer

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

PORTABLE = """
q1_0 q2_0 iq1_s iq1_m iq2_xxs iq2_xs iq2_s q2_K iq3_xxs iq3_s q3_K mxfp4 iq4_xs iq4_nl q4_K q4_0
q4_1 q5_K q5_0 q5_1 q6_K q8_0"""
OF_IK = """
iq1_kt iq2_kt iq2_ks iq2_k iq2_kl iq3_kt iq3_ks iq3_k iq4_kss iq4_kt iq4_ks iq4_k iq5_ks iq5_k q6_0
iq6_k"""
SAMPLE = 1 << 16  # most values of a tensor for its errors
PIECE = 1 << 20  # values of rows that are in memory at once


def list_types(t: TensorInfo, portable: bool, weighted: bool) -> list[GGMLType]:
    """Return the types for a tensor's rows, smallest first."""
    names = (PORTABLE if portable else PORTABLE + OF_IK).split()
    types = [BY_NAME[name] for name in names if weighted or name not in WANT_IMATRIX]
    fit = [type for type in types if t.ne[0] % type.block_size == 0]
    return sorted(fit, key=lambda type: file_size(type, t.ne))


def get_importance(t: TensorInfo, imatrix: Imatrix | None) -> Floats | None:
    """Return the importance of a tensor's inputs [n_matrices, n]; None if it is missing."""
    found = imatrix.weights(t.name) if imatrix else None
    if found is None or found.size != t.ne[0] * t.ne[2]:
        return None
    return found.reshape(t.ne[2], t.ne[0])


def round_trip(type: GGMLType, weighted: bool) -> Callable[[Floats, Floats | None], Floats]:
    """Return a function from rows [n_rows, n] and their importance [n] to the rows after
    quantization to a type; it may run in several threads."""
    quantize, read, form = writer(type, weighted), row_reader(type), FORMS.get(type.id)

    def run(x: Floats, importance: Floats | None) -> Floats:
        made: Bytes = quantize(x, importance)
        if form is not None and form.name == type.name:
            made = form.unwind(made.reshape(-1), x.shape[1])
        return read(made.reshape(len(x), -1), x.shape[1])

    return run


def matrices(t: TensorInfo, most: int = 0) -> Iterator[tuple[int, Floats]]:
    """Yield the rows of each matrix in pieces, with the number of its importance; at most about
    `most` values of the tensor, 0 for all."""
    n, per_matrix = t.ne[0], t.ne[1]
    rows = t.data.reshape(-1, t.type.row_size(n))
    n_matrices = t.ne[2] * t.ne[3]
    step = max(1, per_matrix * n_matrices * n // most) if most else 1
    n_rows = max(1, PIECE // n)
    for matrix in range(n_matrices):
        part = rows[matrix * per_matrix : (matrix + 1) * per_matrix : min(step, per_matrix)]
        for i in range(0, len(part), n_rows):
            piece = np.ascontiguousarray(part[i : i + n_rows])
            yield matrix % t.ne[2], row_reader(t.type)(piece, n)


def measure_errors(
    t: TensorInfo, types: Sequence[GGMLType], importance: Floats | None
) -> dict[str, float]:
    """Return the sums of importance * difference^2 by type, relative to importance * value^2."""
    sums, total = dict.fromkeys((type.name for type in types), 0.0), 0.0
    trips = [round_trip(type, importance is not None) for type in types]
    with ThreadPoolExecutor(len(logical_cpus())) as pool:
        for matrix, x in matrices(t, SAMPLE):
            weights = None if importance is None else importance[matrix]
            share = np.ones(x.shape[1], np.float32) if weights is None else weights
            total += float(np.einsum("ij,ij,j->", x, x, share, dtype=np.float64))
            made = pool.map(lambda trip, x=x, w=weights: trip(x, w), trips)
            for type, rows in zip(types, made, strict=True):
                diff = rows - x
                error = np.einsum("ij,ij,j->", diff, diff, share, dtype=np.float64)
                sums[type.name] += float(error)
    return {name: error / total if total else 0.0 for name, error in sums.items()}
