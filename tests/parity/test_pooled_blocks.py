"""Attention to chosen blocks of positions, beside the real llama.cpp, for text, an image and text
after it. Of cells with equal scores it takes any, so the tokens count whose budget ends with a
block."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dev import tiny_models as tiny
from dev.record.golden import runs
from dev.record.golden.engines import LlamaCpp, Ours
from llama_py.batch import Batch
from tests.support.live_models import nmse, tokens

pytest.importorskip("llama_cpp", reason="needs llama-cpp-python: pip install '.[parity]'")
pytestmark = pytest.mark.parity

ARCH, IMAGE = "qwen4exp", 7
TEXT, PATCHES = 20, 9


def image(at: int, n: int) -> Batch:
    """n patches of one time, three in a row."""
    i = np.arange(n)
    pos = np.stack([np.full(n, at), at + i // 3, at + i % 3, np.zeros(n, int)]).astype(np.int32)
    rows = np.random.default_rng(1).standard_normal((n, 64)).astype(np.float32)
    return Batch(None, rows, pos, [(0,)] * n, [True] * n)


def logits(engine: Any, path: Path) -> Any:
    with engine(path, flash=False, cache="f32") as made:
        found = []
        for batch, n in (
            (runs.batch(tokens(TEXT), 0, "all"), TEXT),
            (image(TEXT, PATCHES), PATCHES),
            (runs.batch(tokens(12, 1), TEXT + 3, "all"), 12),
        ):
            made.run(batch)
            found.append(np.array(made.logits(n)))
        return np.concatenate(found)


@pytest.mark.parametrize(("size", "n_chosen"), [(2, 8), (3, 9)])
def test_logits(size: int, n_chosen: int, tmp_path: Path) -> None:
    found = tiny.find(ARCH, "ngrams")
    changed = {
        "attention.indexer.top_k": n_chosen,
        "attention.indexer.head_count": 12,
        "attention.compress_ratios": [0, size],
        "ple.image_token_id": IMAGE,
    }
    path = tiny.write_file(tmp_path / "m.gguf", ARCH, replace(found, keys=found.keys | changed))
    theirs, ours = logits(LlamaCpp, path), logits(Ours, path)
    assert nmse(theirs[size - 2 :: size], ours[size - 2 :: size]) <= 1e-10
