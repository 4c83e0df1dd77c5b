"""The rotation of heads in quantized caches."""

from __future__ import annotations

import numpy as np

from llama_py.memory.kv_rot import hadamard


def test_hadamard_is_its_own_inverse() -> None:
    h = hadamard(64)
    assert np.allclose(h @ h, np.eye(64), atol=1e-6)
    assert h[1, :4].tolist() == [0.125, -0.125, 0.125, -0.125]
