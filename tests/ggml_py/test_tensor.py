"""Tensors: their values as arrays."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_py.backend.registry import device
from ggml_py.errors import GGMLError
from ggml_py.ops import transpose
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F32


def test_values_as_an_array() -> None:
    host = device("cpu")
    t = Tensor(BY_NAME["bf16"], (2, 3))
    with pytest.raises(GGMLError, match="no memory"):
        t.numpy()
    t.buffer = host.alloc(t.nbytes)
    t.buffer.write(0, np.arange(0x3F80, 0x3F86, dtype=np.uint16).view(np.uint8))
    assert t.numpy().shape == (1, 1, 3, 2)
    assert t.numpy()[0, 0, 0].tolist() == [1.0, 1.0078125]
    other = transpose(t)
    other.buffer = t.buffer
    assert np.array_equal(other.numpy()[0, 0], t.numpy()[0, 0].T)
    with pytest.raises(GGMLError, match="quantized"):
        Tensor(BY_NAME["q8_0"], (32,)).numpy()
    assert Tensor(F32, (0, 3)).numpy().shape == (1, 1, 3, 0)


def test_sources_that_must_be_there() -> None:
    a, b = Tensor(F32, (4,), name="a"), Tensor(F32, (4,), name="b")
    node = Tensor(F32, (4,), "SOFT_MAX", (a, None, b))
    assert node.source(0) is a
    assert node.sources(1) == (a,)
    assert Tensor(F32, (4,), "ADD", (a, b)).sources() == (a, b)
    assert (node.optional(1), node.optional(2), node.optional(3)) == (None, b, None)
    with pytest.raises(GGMLError, match="SOFT_MAX needs source 1"):
        node.sources()
    with pytest.raises(GGMLError, match="SOFT_MAX needs source 3"):
        node.source(3)
