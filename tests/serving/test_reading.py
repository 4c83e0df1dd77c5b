"""Embeddings and scores beside answers."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_py.errors import ContextError
from llama_py.context import Context
from llama_py.serving import TooLong
from llama_py.text.embed import normalize_rows, rows
from llama_py.text.rerank import rerank
from tests.serving.engines import WAIT, alone, ask, engine, model, request
from tests.support.live_models import EXACT, tokens

TEXTS = [tokens(n, n) for n in (3, 40, 1, 64, 20, 7)]


@pytest.mark.parametrize("name", ["llama-dense", "qwen35-dense"])
def test_texts_are_embedded_while_others_are_answered(name: str) -> None:
    with engine(name, n_batch=64) as made:
        answer = ask(made, request(tokens(5), n=60))
        found = made.embed(TEXTS).result(WAIT)
        ctx = Context(model(name), **EXACT, embeddings=True, pooling="mean")
        expected = normalize_rows(np.stack([next(rows(ctx, [ids])) for ids in TEXTS]), 2)
        assert np.allclose(found, expected, atol=1e-5)
        assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
        each = made.embed(TEXTS, "none").result(WAIT)
        assert [len(one) for one in each] == [3, 40, 1, 64, 20, 7]
        answer.end()
        assert answer.tokens == alone(name, tokens(5), n=60)


def test_what_cannot_be_embedded_is_told_at_once() -> None:
    with engine("llama-dense", n_batch=64) as made:
        with pytest.raises(TooLong, match="65 tokens"):
            made.embed([tokens(3), tokens(65)])
        with pytest.raises(ContextError, match="text 1 has no tokens"):
            made.embed([[1], []])
        with pytest.raises(ContextError, match="no classifier"):
            made.rerank("a", ["b"])
        assert made.embed([]).result(WAIT) == []


def test_models_that_only_read() -> None:
    with engine("bert-dense", n_ubatch=256) as made:
        with pytest.raises(ContextError, match="use embed"):
            made.submit(request([1, 2]), lambda _: None)
        assert len(made.embed([[1, 2], [3]]).result(WAIT)) == 2


def test_scores_of_a_reranker() -> None:
    texts = ["tok_3 tok_4", "tok_5", "tok_6 tok_7 tok_8"]
    how = {"flash_attn": "auto", "type_k": "f16", "type_v": "f16"}  # as `rerank` has it
    with engine("bert-rank", n_ubatch=256, **how) as made:
        found = np.stack(made.rerank("tok_1 tok_2", texts).result(WAIT))
    expected = rerank(model("bert-rank"), "tok_1 tok_2", texts)
    assert np.allclose(found.reshape(expected.shape), expected, atol=1e-5)
    assert len({*found[:, 0].tolist()}) == 3
