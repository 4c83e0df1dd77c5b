"""Scores of continuations equal those of each prompt and continuation computed alone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest

from ggml_py.errors import ContextError
from llama_py.context import Context
from llama_py.serving import Busy, Engine, EngineClosed, Score, TooLong
from tests.serving.engines import WAIT, ask_all, engine, held, model, request
from tests.support.live_models import EXACT, tokens

# keys and values; windows; states and keys; states; latent keys and states
MODELS = ["llama-dense", "gemma3-dense", "qwen35-dense", "mamba2-dense", "kimi-linear-moe"]
LENGTHS = [3, 1, 11, 1, 2, 25, 3, 7, 1]


def continuations() -> list[list[int]]:
    return [tokens(n, 50 + i) for i, n in enumerate(LENGTHS)]


def wanted(name: str, prompt: Sequence[int], ids: Sequence[int]) -> np.ndarray[Any, Any]:
    """Log probabilities of one text that is computed alone, at once."""
    ctx = Context(model(name), **{**EXACT, "n_ctx": 256})
    rows = ctx.decode([*prompt, *ids], logits="all").astype(np.float64)[len(prompt) - 1 : -1]
    rows -= np.log(np.exp(rows).sum(-1, keepdims=True))
    return np.array([row[id] for row, id in zip(rows, ids, strict=True)])


def check(name: str, prompt: Sequence[int], texts: Sequence[Sequence[int]], found: Any) -> None:
    assert len(found) == len(texts)
    for ids, scores in zip(texts, found, strict=True):
        assert [one.token for one in scores] == list(ids)
        values = [one.logprob for one in scores]
        assert values == pytest.approx(wanted(name, prompt, ids), abs=1e-4)


@pytest.mark.parametrize("how", [{"kv_unified": True}, {"kv_unified": False}, {"n_seq_max": 1}])
@pytest.mark.parametrize("name", MODELS)
def test_of_any_length_in_any_batches(name: str, how: dict[str, Any]) -> None:
    texts = continuations()
    with engine(name, **{"n_seq_max": 4, "n_ctx": 1024, **how}) as made:
        for prompt in (tokens(41, 1), tokens(41, 1), tokens(1, 2)):  # the second one is cached
            future = made.score(prompt, texts, n_top=1)
            answers = ask_all(made, [request(tokens(9, 7), 4)]) if prompt[1:] else []
            check(name, prompt, texts, future.result(WAIT))
            assert all(one.end().finish_reason == "length" for one in answers)
        assert made.slots()[0].state == "idle"


@pytest.mark.parametrize("name", ["llama-dense", "qwen35-dense", "mamba2-dense"])
def test_a_prompt_is_computed_once(name: str) -> None:
    texts, prompt = [tokens(5, 60 + i) for i in range(4)], tokens(90)
    with engine(name, kv_unified=True, n_piece=None) as made:
        check(name, prompt, texts, made.score(prompt, texts).result(WAIT))
        n = made.metrics().total.n_prompt
        assert len(prompt) <= n <= len(prompt) + 4 * 5 + 3
        check(name, prompt, texts, made.score(prompt, texts).result(WAIT))
        assert made.metrics().total.n_prompt - n <= 4 * 5 + 1


@pytest.mark.parametrize("name", ["llama-dense", "qwen35-dense", "mamba2-dense"])
def test_later_continuations_find_the_prompt(name: str) -> None:
    prompt = tokens(90)
    with engine(name, kv_unified=True) as made:
        for i in range(3):
            texts, before = [tokens(5, 70 + i)], made.metrics().total.n_prompt
            check(name, prompt, texts, made.score(prompt, texts).result(WAIT))
            assert made.metrics().total.n_prompt - before == (5 if i else len(prompt) + 4)


def test_continuations_are_one_batch() -> None:
    texts, prompt = [tokens(5, 60 + i) for i in range(4)], tokens(90)
    with engine("llama-dense", kv_unified=True, n_piece=None) as made:
        sizes, decode = list[int](), made._ctx.decode

        def noted(batch: Any, *args: Any, **how: Any) -> Any:
            sizes.append(len(getattr(batch, "tokens", batch)))
            return decode(batch, *args, **how)

        made._ctx.decode = noted  # type: ignore[method-assign]
        with made._changed:
            future = made.score(prompt, texts)
        check("llama-dense", prompt, texts, future.result(WAIT))
        assert sum(sizes[:-1]) == len(prompt) - 1 and sizes[-1] == 4 * 5


def test_alternatives_need_no_token_more() -> None:
    prompt, ids = tokens(30), [3, 1, 3]
    with engine("qwen35-dense") as made:
        found = made.score(prompt, [[id] for id in ids], n_top=2).result(WAIT)
        check("qwen35-dense", prompt, [[id] for id in ids], found)
        assert made.metrics().total.n_prompt == len(prompt)
        assert found[0] == found[2] and len(found[0][0].top) == 2
        assert isinstance(found[0][0], Score)


def test_wrong_texts_are_refused() -> None:
    with engine("llama-dense", max_queue=2) as made:
        for prompt, texts, why in (
            ([], [[1]], "prompt is empty"),
            ([1], [], "continuations is empty"),
            ([1], [[1], []], "continuation 1 has no tokens"),
            ([1], [[1], [-1]], "token must be in"),
            ([1], [[1, 10**6]], "token must be in"),
        ):
            with pytest.raises(ContextError, match=why):
                made.score(prompt, texts)
        with pytest.raises(TooLong):
            made.score(tokens(200), [tokens(100)])
        with held(made, 0), pytest.raises(Busy):
            made.score(tokens(9), [tokens(3, i) for i in range(9)])
        _wait_idle(made)
        with pytest.raises(ContextError, match="max_tokens=0"):
            ask_all(made, [request([1], 4, alternatives=[1])])
        with pytest.raises(ContextError, match="score_from"):
            ask_all(made, [request([1], 4, prompt_logprobs=0, score_from=2)])


def test_a_cancelled_future_frees_the_slots() -> None:
    with engine("llama-dense") as made:
        with held(made, 1):
            future = made.score(tokens(60), continuations())
            assert future.cancel()
        check("llama-dense", [1, 2], [[3, 4]], made.score([1, 2], [[3, 4]]).result(WAIT))
        _wait_idle(made)
        with pytest.raises(CancelledError):
            future.result(0)
        assert made.metrics().total.ended["cancelled"] > 0


def test_a_time_limit_and_the_end() -> None:
    made = engine("llama-dense")
    with held(made, 0):
        late = made.score(tokens(60), continuations(), t_max=1e-9)
    with pytest.raises(Busy, match="time limit"):
        late.result(WAIT)
    with held(made, 0):
        lost = made.score(tokens(61, 3), continuations())
        with made._changed:
            made._closing = True
    made.close()
    with pytest.raises(EngineClosed):
        lost.result(WAIT)


def _wait_idle(made: Engine) -> None:
    while made.metrics().n_busy or made.metrics().n_waiting:
        pass
