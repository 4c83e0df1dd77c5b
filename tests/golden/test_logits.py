"""Logits of the golden models against the real llama.cpp's, and against themselves in other
batches.
"""

from __future__ import annotations

from pathlib import Path

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


def context(name: str, **more: object) -> llama_py.Context:
    model = llama_py.load(GOLDEN / "models" / f"{name}.gguf")
    return model.context(**{"n_ctx": 256, "n_batch": 64, "n_ubatch": 64, **more})


@pytest.mark.parametrize("name", MODELS)
def test_batch_and_greedy_steps(name: str) -> None:
    gold = np.load(GOLDEN / "logits" / f"{name}.npz")
    ctx = context(name)
    logits = ctx.decode(gold["tokens"], logits="all")
    assert nmse(gold["logits"], logits) <= 3e-6
    last = logits[-1]
    for token, expected in zip(gold["greedy"], gold["greedy_logits"], strict=True):
        assert int(last.argmax()) == token
        last = ctx.decode([int(token)])[0]
        assert nmse(expected, last) <= 3e-6


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n_ubatch", [1, 7, 16])
def test_any_split_gives_the_same(name: str, n_ubatch: int) -> None:
    tokens = np.load(GOLDEN / "logits" / f"{name}.npz")["tokens"]
    whole = context(name).decode(tokens, logits="all")
    split = context(name, n_ubatch=n_ubatch).decode(tokens, logits="all")
    assert nmse(whole, split) <= 1e-7
