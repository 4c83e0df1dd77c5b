"""Models that score marked options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from dev import tiny_models as tiny
from ggml_py.errors import ContextError
from llama_py.batch import Batch
from llama_py.loading.model import LoadedModel

TOKENS = [3, 14, 15, 9, 2, 6, 5, 35]


@pytest.fixture(scope="module")
def clef(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return llama_py.load(tiny.write("clef", "routing", tmp_path_factory.mktemp("clef")))


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return llama_py.load(tiny.write("vllm-decision2", "dense", tmp_path_factory.mktemp("decision")))


def scores(model: LoadedModel, marks: list[int] | None) -> list[float]:
    """The outputs of a text with marks."""
    ctx = model.context(n_ctx=64, embeddings=True)
    ctx.decode(Batch(TOKENS[: len(marks or TOKENS)], marks=marks))
    assert ctx.embd is not None and ctx.embd.shape == (len(marks or TOKENS), 1)
    return [float(x) for x in ctx.embd[:, 0]]


@pytest.mark.parametrize(
    ("marks", "n"),
    [
        ([1, 1, 0, 4, 4, 0, 4, 0], 2),
        ([4, 0, 4, 2, 4, 0, 4, 4], 4),
        ([4, 4, 3, 3, 0, 0, 0, 0], 1),
        ([0] * 8, 1),
        (None, 1),
    ],
)
def test_one_score_an_option(scorer: LoadedModel, marks: list[int] | None, n: int) -> None:
    found = scores(scorer, marks)
    assert all(found[:n]) and not any(found[n:])


@pytest.mark.parametrize(
    "marks", [[1, 1, 0, 0], [0, 4, 4, 0], [1, 0, 1, 4], [1, 2, 4, 0], [4, 1, 4, 1]]
)
def test_marks_that_do_not_fit(scorer: LoadedModel, marks: list[int]) -> None:
    assert np.isnan(scores(scorer, marks)).all()


@pytest.mark.parametrize("which", ["scorer", "clef"])
@pytest.mark.parametrize("marks", [[1, 4, 0, 4, 2, 0], [4, 1, 4, 2, 0, 0], [4, 0, 4, 0, 4, 0]])
def test_marks_that_do_not_fit_have_the_graph_without_marks(
    which: str, marks: list[int], request: pytest.FixtureRequest
) -> None:
    """llama.cpp builds the same graph for both, with one option."""
    graphs: list[Any] = []
    for each in (marks, None):
        ctx = request.getfixturevalue(which).context(n_ctx=64, embeddings=True)
        ctx.on_graph = lambda res, _: graphs.append([n.ne for n in res.graph.nodes])
        ctx.decode(Batch(TOKENS[:6], marks=each))
        assert ctx.embd is not None and np.isnan(ctx.embd).all() == (each is not None)
    assert graphs[0] == graphs[1]


def test_the_last_token_of_an_option_is_scored(scorer: LoadedModel) -> None:
    one, other = (scores(scorer, [1, 1, 0, 0, *end, 0, 0]) for end in ([4, 4], [0, 4]))
    assert one == other != scores(scorer, [1, 1, 0, 0, 4, 0, 0, 0])


def test_another_number_of_options_is_another_graph(scorer: LoadedModel) -> None:
    with scorer.context(n_ctx=64, embeddings=True) as ctx:
        for marks in ([1, 4, 0, 4], [1, 4, 4, 4], [1, 4, 0, 4]):
            ctx.memory.clear()
            ctx.decode(Batch(TOKENS[:4], marks=marks))
            assert ctx.embd is not None
            assert [float(x) for x in ctx.embd[:, 0]] == scores(scorer, marks)


def test_sequences_are_scored_by_turns(scorer: LoadedModel) -> None:
    marks = [1, 4, 0, 4]
    ctx = scorer.context(n_ctx=128, n_seq_max=2, embeddings=True)
    seq_ids = [(0,), (1,)] * 4
    mixed = [t for pair in zip(TOKENS[:4], TOKENS[4:], strict=True) for t in pair]
    ctx.decode(Batch(mixed, seq_ids=seq_ids, marks=[m for m in marks for _ in range(2)]))
    assert ctx.embd is not None
    np.testing.assert_allclose(ctx.embd[::2, 0], scores(scorer, marks), rtol=1e-4)


def test_what_is_refused(scorer: LoadedModel) -> None:
    ctx = scorer.context(n_ctx=64, n_ubatch=4, embeddings=True)
    with pytest.raises(ContextError, match=r"marks\[1\] must be in \[0, 5\), got 5"):
        ctx.decode(Batch(TOKENS, marks=[1, 5] * 4))
    with pytest.raises(ContextError, match="marks must have 8 entries"):
        ctx.decode(Batch(TOKENS, marks=[1]))
    with pytest.raises(ContextError, match="one has 8 tokens and n_ubatch = 4"):
        ctx.decode(Batch(TOKENS, marks=[1, 4] * 4))
    with pytest.raises(ContextError, match="embeddings=True"):
        scorer.context(n_ctx=64).decode(Batch(TOKENS, marks=[1, 4] * 4))
    with pytest.raises(ContextError, match="does not score marked options"):
        llama_py.load().context(n_ctx=64).decode(Batch(TOKENS, marks=[1, 4] * 4))
    row = scorer.context(n_ctx=64).encode(Batch(TOKENS, marks=[1, 4] + [0] * 6))
    assert row[:, 0].tolist() == scores(scorer, [1, 4] + [0] * 6)
    with pytest.raises(ContextError, match="scores marked options"):
        scorer.generate([1, 2], max_tokens=1)


@pytest.mark.parametrize(
    ("marks", "n"),
    [
        ([1, 1, 0, 4, 4, 0, 4, 0], 2),
        ([1, 4, 2, 4, 3, 4, 0, 4], 4),
        ([1, 4, 1, 4, 1, 4, 1, 4], 4),
        ([0] * 8, 1),
        (None, 1),
    ],
)
def test_options_of_several_questions(clef: LoadedModel, marks: list[int] | None, n: int) -> None:
    found = scores(clef, marks)
    assert all(found[:n]) and not any(found[n:])


@pytest.mark.parametrize(
    "marks", [[1, 1, 0, 0], [0, 4, 4, 0], [4, 1, 4, 0], [1, 2, 4, 4], [1, 4, 2, 0]]
)
def test_a_question_without_options_is_nan(clef: LoadedModel, marks: list[int]) -> None:
    assert np.isnan(scores(clef, marks)).all()


def test_a_text_is_read_alone(clef: LoadedModel) -> None:
    """Earlier texts and other sequences have no effect."""
    marks = [1, 4, 0, 4]
    ctx = clef.context(n_ctx=64, n_seq_max=2, embeddings=True)
    for _ in range(2):
        seq_ids = [(0,)] * 4 + [(1,)] * 4
        ctx.decode(Batch(TOKENS, seq_ids=seq_ids, marks=marks * 2))
        assert ctx.embd is not None
        np.testing.assert_allclose(ctx.embd[:4, 0], scores(clef, marks), rtol=1e-4)
    small = clef.context(n_ctx=64, n_ubatch=4, embeddings=True)
    with pytest.raises(ContextError, match="one has 8 tokens and n_ubatch = 4"):
        small.decode(TOKENS)


def test_blocks_of_the_head_may_outnumber_the_layers(tmp_path: Path) -> None:
    """They are placed like the output."""
    few = tiny.find("clef", "joint")
    keys = {"block_count": 1, "attention.recurrent_layers": [True], "decision.block_count": 5}
    path = tmp_path / "clef.gguf"
    tiny.write_file(path, "clef", replace(few, keys={**few.keys, **keys}))
    assert all(scores(llama_py.load(path), [1, 4, 0, 4])[:2])
