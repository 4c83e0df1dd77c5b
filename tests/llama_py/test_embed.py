"""Embeddings of texts: a row for each, whatever they are read together with."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import llama_py
from ggml_py.errors import ContextError
from llama_py.embed import embed
from tests.commands import DEMO
from tests.live_models import live, tokens

TEXTS = ["To be, or not to be", "that is the question", "Whether"]


@pytest.fixture(scope="module")
def demo() -> llama_py.Model:
    return llama_py.load(DEMO, "ref")


def hidden(name: str, ids: list[int]) -> NDArray[np.float32]:
    """The last hidden state of each token. -> [n_tokens, n_embd]"""
    ctx = live(name).context(256, embeddings=True, pooling="none")
    ctx.decode(ids)
    assert ctx.embd is not None
    return ctx.embd


@pytest.mark.parametrize("name", ["llama-dense", "qwen35moe-moe"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_rows_are_pooled(name: str, pooling: str) -> None:
    ids = [tokens(n, seed=n) for n in (3, 1, 7)]
    found = embed(live(name), ids, pooling, normalize=False)
    for row, each in zip(found, ids, strict=True):
        rows = hidden(name, each)
        expected = {"mean": rows.mean(0), "cls": rows[0], "last": rows[-1]}[pooling]
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-5)


def test_one_text_or_several(demo: llama_py.Model) -> None:
    n_embd = demo.hparams.n_embd
    rows = demo.embed(TEXTS)
    assert rows.shape == (3, n_embd) and demo.embed(TEXTS[0]).shape == (n_embd,)
    for text, row in zip(TEXTS, rows, strict=True):
        np.testing.assert_allclose(demo.embed(text), row, atol=1e-5)
    assert demo.embed([]).shape == (0, n_embd)


def test_lengths_are_one_unless_told_otherwise(demo: llama_py.Model) -> None:
    rows, plain = demo.embed(TEXTS), demo.embed(TEXTS, normalize=False)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)
    assert (np.linalg.norm(plain, axis=1) > 1.5).all()
    np.testing.assert_allclose(plain / np.linalg.norm(plain, axis=1, keepdims=True), rows)


def test_many_texts_are_read_in_groups() -> None:
    ids = [tokens(1 + i % 5, seed=i) for i in range(70)]
    found = embed(live("llama-dense"), ids)
    for i in (0, 31, 32, 69):
        np.testing.assert_allclose(found[i], embed(live("llama-dense"), [ids[i]])[0], atol=1e-5)


def test_what_makes_no_sense(demo: llama_py.Model) -> None:
    with pytest.raises(ContextError, match="text 1 has no tokens"):
        embed(demo, [[5], []])
    with pytest.raises(ContextError, match="embed gives one row a text"):
        demo.embed("x", pooling="none")
    with pytest.raises(ContextError, match="pooling is 'sum'; it must be one of auto, none, mean"):
        demo.embed("x", pooling="sum")
