"""Logits of the golden models on an OpenCL device against the real llama.cpp's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
MODELS = [
    "llama-dense", "llama-moe", "qwen35-dense-gqa", "qwen35moe-moe", "qwen35moe-moe-gqa",
    "qwen35moe-mtp", "qwen3next-moe-gqa", "kimi-linear-moe",
]  # fmt: skip

pytestmark = pytest.mark.skipif(
    not GOLDEN.exists(), reason="the golden data of the real llama.cpp is not beside this checkout"
)


def nmse(expected: np.ndarray, found: np.ndarray) -> float:
    expected, found = expected.astype(np.float64), found.astype(np.float64)
    return float(((expected - found) ** 2).sum() / (expected**2).sum())


def context(name: str, device: Any, **more: object) -> llama_py.Context:
    model = llama_py.load(GOLDEN / "models" / f"{name}.gguf", device.name)
    return model.context(**{"n_ctx": 256, "n_batch": 64, "n_ubatch": 64, **more})


@pytest.mark.parametrize("name", MODELS)
def test_batch_and_greedy_steps(name: str, device: Any) -> None:
    gold = np.load(GOLDEN / "logits" / f"{name}.npz")
    ctx = context(name, device)
    logits = ctx.decode(gold["tokens"], logits="all")
    assert nmse(gold["logits"], logits) <= 1e-5
    last = logits[-1]
    for token, expected in zip(gold["greedy"], gold["greedy_logits"], strict=True):
        assert int(last.argmax()) == token
        last = ctx.decode([int(token)])[0]
        assert nmse(expected, last) <= 1e-5


@pytest.mark.parametrize("name", ["llama-dense", "qwen35moe-moe-gqa", "kimi-linear-moe"])
def test_other_ways_give_the_same(name: str, device: Any) -> None:
    """Small micro-batches, and attention with a score matrix."""
    gold = np.load(GOLDEN / "logits" / f"{name}.npz")
    for more in ({"n_ubatch": 7}, {"flash_attn": False}):
        logits = context(name, device, **more).decode(gold["tokens"], logits="all")
        assert nmse(gold["logits"], logits) <= 1e-5


@pytest.mark.parametrize("path", sorted((GOLDEN / "shapes").glob("*.gguf")), ids=lambda p: p.stem)
def test_every_architecture_runs_wholly_on_the_device(path: Path, device: Any) -> None:
    """A prompt and a step; a node that the device refuses would raise. Weights are zero."""
    ctx = llama_py.load(path, device.name).context(n_ctx=256, n_batch=64, n_ubatch=64)
    for tokens in ([1, 2, 3, 4, 5], [6]):
        assert np.isfinite(ctx.decode(tokens, logits="all")).all()
