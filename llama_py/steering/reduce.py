"""Reduction of a layer's differences to one direction (cvector-generator: pca.hpp, mean.hpp)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
N_ITER, TOLERANCE, BLOCK = 1000, 1e-13, 8


def mean(rows: npt.NDArray[Any]) -> F64:
    """Return the mean of rows [n, n_embd], scaled to length 1."""
    found: F64 = rows.mean(axis=0, dtype=np.float64)
    return found / _norm(found)


def pca(rows: npt.NDArray[Any]) -> F64:
    """Return the principal direction, of length 1, of rows [n, n_embd], which are not centered,
    with the sign of the mean.

    Rayleigh-Ritz subspace iteration rotates several vectors towards it at once. A single vector
    converges slowly if the first two directions have similar squares.
    """
    x = rows.astype(np.float64)
    wide = len(x) < x.shape[1]
    gram = x @ x.T if wide else x.T @ x
    start = np.random.default_rng(0).standard_normal((len(gram), min(len(gram), BLOCK)))
    best, turned = start[:, 0], start
    for _ in range(N_ITER):
        basis, _ = np.linalg.qr(turned)
        turned = gram @ basis
        _, vectors = np.linalg.eigh(basis.T @ turned)
        before, best = best, basis @ vectors[:, -1]
        if abs(best @ before) > (1 - TOLERANCE) * _norm(before):
            break
    found: F64 = x.T @ best if wide else best
    found = found / _norm(found)
    return -found if found @ x.mean(axis=0) < 0 else found


def _norm(x: F64) -> float:
    return float(np.linalg.norm(x)) or 1.0


METHODS = {"pca": pca, "mean": mean}
