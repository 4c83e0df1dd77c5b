"""`Model.score`: probabilities of texts equal those of each text computed alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError, ModelError
from llama_py.batch.prompts import TooLong
from llama_py.context import Context
from llama_py.model import Model
from llama_py.text import score as scoring
from llama_py.text.score import Scorer, ScoreTask, TextScore, tokenize_continuations
from tests.support.live_models import EXACT, live, tokens

# keys and values; windows; states and keys; states; latent keys and states
MODELS = ["llama-dense", "gemma3-dense", "qwen35-dense", "mamba2-dense", "kimi-linear-moe"]
LENGTHS = [3, 1, 11, 1, 2, 25, 3, 7, 1]
TEXTS = [tokens(n, 50 + i) for i, n in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def demo() -> Iterator[Model]:
    with llama_py.load() as model:
        yield model


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches without rounding."""
    monkeypatch.setattr(scoring, "Context", lambda *a, **how: Context(*a, **{**EXACT, **how}))


def rows(model: Model, prompt: Sequence[int], ids: Sequence[int]) -> Any:
    ctx = Context(model, **{**EXACT, "n_ctx": 1024})
    found = ctx.decode([*prompt, *ids], logits="all").astype(np.float64)[len(prompt) - 1 : -1]
    return found - np.log(np.exp(found).sum(-1, keepdims=True))


def check(
    model: Model, prompt: Sequence[int], texts: Sequence[Sequence[int]], found: Sequence[TextScore]
) -> None:
    assert len(found) == len(texts)
    for ids, one in zip(texts, found, strict=True):
        logs = rows(model, prompt, ids)
        assert [token.token for token in one.tokens] == list(ids)
        wanted = [row[id] for row, id in zip(logs, ids, strict=True)]
        assert [token.logprob for token in one.tokens] == pytest.approx(wanted, abs=1e-4)
        assert one.logprob == pytest.approx(sum(wanted), abs=1e-4 * len(ids))
        assert one.is_greedy == (logs.argmax(-1).tolist() == list(ids))


@pytest.mark.parametrize("n_copies", [1, 3, 16])
@pytest.mark.parametrize("name", MODELS)
def test_scores_of_any_length_in_any_batches(
    name: str, n_copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "N_COPIES", n_copies)
    model = live(name, "cpu")
    with Scorer(model) as scorer:
        for prompt in (tokens(41, 1), tokens(41, 1), tokens(30, 1), tokens(1, 2)):
            check(model, prompt, TEXTS, scorer.score(prompt, TEXTS, 2))


def test_scores_of_parts_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "max_rows", lambda n_vocab: 4)
    model = live("qwen35-dense", "cpu")
    with Scorer(model) as scorer:
        check(model, tokens(9), TEXTS, scorer.score(tokens(9), TEXTS))


def test_a_small_context_has_smaller_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "N_CTX_LEAST", 64)
    for name in ("llama-dense", "qwen35-dense"):
        model = live(name, "cpu")
        with Scorer(model) as scorer:
            check(model, tokens(9), TEXTS[:2], scorer.score(tokens(9), TEXTS[:2]))
            first = scorer._ctx
            check(model, tokens(220), TEXTS, scorer.score(tokens(220), TEXTS))
            assert first is not None is not scorer._ctx and scorer._ctx is not first
            assert first.n_ctx == scorer._ctx.n_ctx == 256


@pytest.mark.parametrize("name", ["llama-dense", "qwen35-dense"])
def test_a_prompt_longer_than_a_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    how = {**EXACT, "n_batch": 32, "n_ubatch": 16}
    monkeypatch.setattr(scoring, "Context", lambda *a, **own: Context(*a, **{**how, **own}))
    model, prompt = live(name, "cpu"), tokens(220)
    with Scorer(model) as scorer:
        check(model, prompt, TEXTS, scorer.score(prompt, TEXTS))


@pytest.mark.parametrize(
    "how", [{"n_seq_max": 100}, {"n_seq_max": 13, "n_batch": 16}, {"n_seq_max": 2, "n_ctx": 256}]
)
@pytest.mark.parametrize("name", MODELS)
def test_tasks_do_not_depend_on_the_batch(name: str, how: dict[str, int]) -> None:
    """Prompts of several tasks are one batch, and all continuations another."""
    model = live(name, "cpu")
    tasks = [ScoreTask(tokens(n, 80 + n), TEXTS[i : i + 4]) for i, n in enumerate([9, 41, 1, 17])]
    tasks += [ScoreTask(tokens(9, 3), [[7]]), ScoreTask([*tasks[1].prompt, 5], TEXTS)]
    ctx = Context(model, **{**EXACT, "n_ctx": 1024, "kv_unified": True, **how})
    for _ in range(2):  # sequence 0 has the last prompts then
        for task, found in zip(tasks, scoring.score_tasks(ctx, tasks, 1), strict=True):
            check(model, *task, [scoring._total(scores, 1) for scores in found])
    assert all(ctx.memory.seq_pos_max(s) < 0 for s in range(1, ctx.cparams.n_seq_max))


def test_a_greedy_answer_is_greedy(demo: Model) -> None:
    text = demo.generate("ROMEO:", max_tokens=8, temp=0)
    right, wrong = demo.score("ROMEO:", [text, " xylophone"], n_top=2)
    assert right.is_greedy and not wrong.is_greedy and right.logprob > wrong.logprob
    assert all(one.top[0] == (one.token, one.logprob) for one in right.tokens)
    assert all(len(one.top) == 2 for one in wrong.tokens)
    assert all(one.top == () for one in demo.score("ROMEO:", [text])[0].tokens)


def test_boundaries(demo: Model) -> None:
    t = demo.tokenizer
    whole = t.tokenize("ROMEO: what light")
    start, (rest,) = tokenize_continuations(t, "ROMEO: what ", ["light"])
    assert [*start, *rest] == whole and start == t.tokenize("ROMEO: what")
    apart = tokenize_continuations(t, "ROMEO: what ", ["light"], "apart")
    assert apart == (t.tokenize("ROMEO: what "), [t.tokenize("light", False)])
    assert tokenize_continuations(t, [1, 2], [b"light", [3]]) == ([1, 2], [apart[1][0], [3]])
    one = demo.score("ROMEO: what ", ["light"])[0]
    assert one == demo.score("ROMEO: what", [" light"])[0]
    assert one.logprob == pytest.approx(demo.score(start, [rest])[0].logprob, abs=1e-3)


def test_wrong_texts_are_refused(demo: Model) -> None:
    for prompt, texts, how, error, why in (
        ("", ["a"], {}, ContextError, "prompt is empty"),
        ("  ", ["a"], {}, ContextError, "prompt is empty"),
        ("a", [], {}, ContextError, "continuations is empty"),
        ("ROMEO:", ["b", ""], {}, ContextError, "continuation 1 has no tokens"),
        ("a", ["b"], {}, ContextError, "continuation 0 joins the prompt's tokens"),
        ("a", "b", {}, ModelError, "must be a list of texts, got str"),
        ("a", ["b"], {"boundary": "both"}, ModelError, "boundary must be one of"),
        ("a ", [[1]], {}, ModelError, "cannot precede token ids"),
        ([1], [[10**6]], {}, ContextError, "token"),
        ([1] * 1000, [[1] * 100], {}, TooLong, "1100 tokens"),
    ):
        with pytest.raises(error, match=why):
            demo.score(prompt, texts, **how)  # type: ignore[arg-type]
    assert demo.score([1], [[2]])[0].tokens[0].token == 2


@pytest.mark.parametrize("name", ["bert-dense", "t5-dense", "vllm-decision2-dense"])
def test_models_without_continuations(name: str) -> None:
    scorer = Scorer(live(name, "cpu"))
    for _ in range(2):
        with pytest.raises(ContextError, match="cannot"):
            scorer.score([1], [[2]])
