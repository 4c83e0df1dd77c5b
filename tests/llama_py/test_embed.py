"""Embeddings of texts: a row for each, whatever they are read together with."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import llama_py
from ggml_py.errors import ContextError, HParamsError
from llama_py.text.embed import embed, normalize_rows, similarities
from llama_py.text.rerank import TEMPLATE, labels, pair
from tests.support.commands import DEMO
from tests.support.golden_models import path_of
from tests.support.live_models import live, made, model_of, tokens

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
    with pytest.raises(ContextError, match="embed returns one row per string"):
        demo.embed("x", pooling="none")
    with pytest.raises(
        ContextError, match=r"pooling must be one of auto, none, mean, .*, got 'sum'"
    ):
        demo.embed("x", pooling="sum")


@pytest.mark.parametrize(("norm", "size"), [(1, 1.0), (2, 1.0), (3, 1.0), (0, 32760.0)])
def test_rows_are_divided_by_a_norm(norm: int, size: float) -> None:
    rows = np.array([[3, -4, 1], [0, 0, 0]], np.float32)
    found = np.abs(normalize_rows(rows, norm).astype(np.float64))
    measured = found[0].max() if norm == 0 else (found[0] ** norm).sum() ** (1 / norm)
    assert measured == pytest.approx(size, rel=1e-6) and not found[1].any()
    assert np.sign(normalize_rows(rows, norm))[0].tolist() == [1, -1, 1]


def test_a_norm_out_of_range() -> None:
    with pytest.raises(ContextError, match=r"normalize must be .*, got -2"):
        normalize_rows(np.ones((1, 2), np.float32), -2)


def test_cosines() -> None:
    rows = np.array([[2, 0], [0, 3], [-1, -1], [0, 0], [0, 0]], np.float32)
    half = -(0.5**0.5)
    expected = [
        [1, 0, half, 0, 0], [0, 1, half, 0, 0], [half, half, 1, 0, 0], [0, 0, 0, 1, 1],
        [0, 0, 0, 1, 1],
    ]  # fmt: skip
    np.testing.assert_allclose(similarities(rows), expected, atol=1e-6)


def test_attention_may_see_what_follows() -> None:
    model, ids = live("llama-dense"), tokens(9)
    other = [*ids[:-1], (ids[-1] + 1) % 64]
    for attention, equal in (("causal", True), ("auto", True), ("non-causal", False)):
        a, b = (embed(model, [x], "cls", attention=attention) for x in (ids, other))
        assert np.allclose(a, b, atol=1e-6) is equal, attention


def test_a_reranker_scores_pairs() -> None:
    with llama_py.load(str(path_of("bert-rank"))) as model:
        model.tokenizer.tokenize = lambda text: [ord(c) % 64 for c in text]  # type: ignore[method-assign]
        scores = model.rerank("abc", ["de", "fghi"])
        assert scores.shape == (2, 3)
        row = embed(model, [pair(model, ["abc", "fghi"])], "rank")[0]
        np.testing.assert_allclose(scores[1], row, atol=1e-5)
        assert labels(model) == ["no", "yes", "perhaps"]
    with pytest.raises(ContextError, match="no classifier"):
        live("llama-dense").rerank("a", ["b"])


def scores(name: str, **keys: str) -> NDArray[np.float64]:
    """Scores by a reranker of a few tokens."""
    model = model_of(*made(name, **{f"classifier__{key}": x for key, x in keys.items()}))
    return embed(model, [tokens(5)], "rank", normalize=False)[0].astype(np.float64)


def test_the_file_names_the_classifiers_activation() -> None:
    """Jina's classifier ends with the activation."""
    name = "jina-bert-v2-rank"
    x = np.arctanh(scores(name))
    np.testing.assert_array_equal(scores(name, activation="tanh"), scores(name))
    np.testing.assert_allclose(scores(name, activation="silu"), x / (1 + np.exp(-x)), rtol=1e-4)
    gelu = [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x]
    np.testing.assert_allclose(scores(name, activation="gelu"), gelu, rtol=1e-4)
    for other in ("bert-rank", "modern-bert-rank"):
        assert not np.array_equal(scores(other, activation="silu"), scores(other))
    with pytest.raises(HParamsError, match="must be one of gelu, silu, tanh, got 'relu'"):
        scores(name, activation="relu")


def test_a_pair_is_the_files_prompt_or_has_what_ends_texts_between() -> None:
    seen: list[str] = []
    vocab = SimpleNamespace(texts=["<s>", "</s>", "[SEP]"], add_eos=True, add_sep=True)
    tokenizer = SimpleNamespace(
        vocab=vocab, special_ids={"eos": 1, "sep": 2}, tokenize=lambda t: seen.append(t) or [1]
    )
    file = SimpleNamespace(metadata={})
    model: Any = SimpleNamespace(tokenizer=tokenizer, file=file)
    pair(model, ["q", "d"])
    vocab.add_sep = False
    pair(model, ["q", "d", "e"])
    file.metadata[TEMPLATE] = "Q: {query}? D: {document} ({query})"
    pair(model, ["q", "d"])
    assert seen == ["q</s>[SEP]d", "q</s>d</s>e", "Q: q? D: d (q)"]
