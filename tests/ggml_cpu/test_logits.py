"""The kernel of grammars' masks gives what NumPy gives, wherever bits or logits end."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_cpu.logits import LogitsMask
from ggml_py.backend import registry
from ggml_py.errors import BackendError
from llama_py.sampler import masked


@pytest.mark.parametrize("n", [1, 15, 16, 17, 70, 2048])
@pytest.mark.parametrize("more", [-32, 0, 64])
def test_masked_logits(n: int, more: int) -> None:
    rng = np.random.default_rng(n)
    bits = rng.integers(0, 256, max((n + more + 31) // 32 * 4, 0), np.uint8).tobytes()
    logits = rng.normal(size=n).astype(np.float32)
    logits[0] = -np.inf
    for given in (logits, np.repeat(logits, 2)[::2]):
        before = given.copy()
        found = LogitsMask()(given, bits)
        np.testing.assert_array_equal(found, masked.by_numpy(given, bits))
        np.testing.assert_array_equal(given, before)


def test_an_odd_number_of_bytes() -> None:
    logits = np.arange(30, dtype=np.float32)
    found = LogitsMask()(logits, b"\x01\x02\xff")
    assert np.flatnonzero(np.isfinite(found)).tolist() == [0, 9, *range(16, 24)]


def test_without_that_backend_it_is_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise BackendError("no backend")

    masked.mask.cache_clear()
    monkeypatch.setattr(masked, "device", missing)
    try:
        assert masked.mask() is masked.by_numpy
    finally:
        masked.mask.cache_clear()
    monkeypatch.undo()
    assert isinstance(masked.mask(), LogitsMask) == hasattr(registry.device("cpu"), "logits_mask")
