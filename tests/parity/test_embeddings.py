"""Embeddings of texts of different lengths, beside llama.cpp's in the same process."""

from __future__ import annotations

import numpy as np
import pytest

import llama_py
from dev.record.golden.runs import batch, joined
from llama_py_tools.graph.peer import Peer
from tests.support.commands import DEMO

pytest.importorskip("llama_cpp", reason="needs llama-cpp-python: pip install '.[parity]'")
pytestmark = pytest.mark.parity

TEXTS = ["To be, or not to be", "that is the question", "a horse", "love"]


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_rows_of_the_demo_model(pooling: str) -> None:
    model = llama_py.load(str(DEMO))
    ids = [model.tokenizer.tokenize(text) for text in TEXTS]
    parts = [batch(tokens, outputs="all", seq=s) for s, tokens in enumerate(ids)]
    n = sum(map(len, ids))
    with Peer(
        str(DEMO),
        n_ctx=256,
        n_batch=256,
        n_ubatch=256,
        n_threads=1,
        n_seq_max=len(ids),
        kv_unified=True,
        embeddings=True,
        pooling=pooling,
    ) as peer:
        peer.run(joined(parts))
        expected = np.stack([peer.embeddings_seq(s) for s in range(len(ids))])
    assert n > len(ids)
    found = model.embed(TEXTS, pooling, normalize=False)
    np.testing.assert_allclose(found, expected, atol=0.02 * float(np.abs(expected).max()))
    cosines = (found * expected).sum(1) / np.linalg.norm(found, axis=1)
    np.testing.assert_allclose(cosines / np.linalg.norm(expected, axis=1), 1, atol=1e-4)
