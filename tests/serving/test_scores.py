"""Log probabilities of a prompt's tokens are those of one pass over it, whatever else goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ggml_py.errors import ContextError
from llama_py.context import Context
from llama_py.serving import Engine, Score
from llama_py.serving.known_scores import KnownScores, ScoredText
from tests.serving.engines import Asked, alone, ask, ask_all, engine, model, request
from tests.support.adapters import matrices, pairs, write_adapter
from tests.support.live_models import EXACT, model_of, tokens
from tests.support.live_models import made as weights

# keys and values; windows; states and keys; states; latent keys and states
MODELS = ["llama-dense", "gemma3-dense", "qwen35-dense", "mamba2-dense", "kimi-linear-moe"]


def scores(asked: Asked) -> list[Score]:
    return [one for event in asked.events for one in event.scores]


def check(name: str, asked: Asked, ids: list[int], n: int = 2) -> None:
    ctx = Context(model(name), **{**EXACT, "n_ctx": 256})
    rows = ctx.decode(ids, logits="all").astype(np.float64)
    rows -= np.log(np.exp(rows).sum(-1, keepdims=True))
    found = scores(asked)
    assert [one.token for one in found] == ids[1:]
    for one, row in zip(found, rows, strict=False):
        assert one.logprob == pytest.approx(row[one.token], abs=1e-4)
        assert [value for _, value in one.top] == pytest.approx(np.sort(row)[::-1][:n], abs=1e-4)


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_of_several_next_to_other_answers(name: str, unified: bool) -> None:
    prompts = [tokens(n, seed) for seed, n in enumerate([41, 2, 1, 17])]
    with engine(name, kv_unified=unified) as made:
        for _ in range(2):  # the second time all scores are known
            asked = [request(ids, 8, prompt_logprobs=2) for ids in prompts]
            found = ask_all(made, [*asked, request(prompts[0], 8)])
            for one, ids in zip(found, [*prompts, prompts[0]], strict=True):
                assert one.tokens == alone(name, ids, 8)
            for one, ids in zip(found, prompts, strict=False):
                check(name, one, ids)
            assert not scores(found[-1])
        again = ask(made, request(prompts[0], 1)).end()
        assert again.timings.n_reused == len(prompts[0]) - 1


@pytest.mark.parametrize("name", ["llama-dense", "qwen35-dense"])
def test_of_prompts_that_give_way(name: str) -> None:
    prompts = [tokens(90, seed) for seed in range(4)]
    with engine(name, kv_unified=True, n_ctx=256) as made:
        found = ask_all(made, [request(ids, 20, prompt_logprobs=0) for ids in prompts])
        for one, ids in zip(found, prompts, strict=True):
            assert one.end().error is None and one.tokens == alone(name, ids, 20)
            check(name, one, ids, 0)


def test_nothing_but_scores() -> None:
    ids = tokens(30)
    with engine("llama-dense") as made:
        asked = ask(made, request(ids, 0, prompt_logprobs=2))
        assert asked.end().finish_reason == "length" and not asked.tokens
        check("llama-dense", asked, ids)
        with pytest.raises(ContextError, match="empty"):
            ask(made, request([], 0, prompt_logprobs=2))


PREFIX = tokens(70, 3)
PROMPTS = [[*PREFIX, *tokens(5 + i, 50 + i)] for i in range(4)]


def n_computed(made: Engine) -> int:
    return made.metrics().total.n_prompt


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_common_beginning_is_scored_once(name: str, unified: bool) -> None:
    """Of the others, the last common token is computed again: its logits score another token."""
    with engine(name, kv_unified=unified) as made:
        found = ask_all(made, [request(ids, 0, prompt_logprobs=2) for ids in PROMPTS])
        for one, ids in zip(found, PROMPTS, strict=True):
            assert one.end().finish_reason == "length" and not one.tokens
            check(name, one, ids)
        n = 69 + sum(len(ids) - 70 for ids in PROMPTS)
        assert n_computed(made) == made.metrics().total.n_scored == n
        later = [*PREFIX, *tokens(9, 77)]
        for n_new, n_top in ((9, 2), (0, 1), (0, 0)):  # the scores of all its tokens are known
            one, before = ask(made, request(later, 0, prompt_logprobs=n_top)), n_computed(made)
            one.end()
            check(name, one, later, n_top)
            assert n_computed(made) - before <= n_new + (8 if "mamba" in name else 0)
        one = ask(made, request(later, 8, prompt_logprobs=2))
        one.end()
        check(name, one, later)
        assert one.tokens == alone(name, later, 8)


def test_scores_that_are_computed_again() -> None:
    name, ids = "llama-dense", PROMPTS[0]
    with engine(name) as made:
        for n_top, cached in ((1, True), (2, True), (2, False)):
            before = n_computed(made)
            one = ask(made, request(ids, 0, prompt_logprobs=n_top, cache_prompt=cached))
            one.end()
            check(name, one, ids, n_top)
            assert n_computed(made) - before == len(ids) - 1


def test_scores_of_adapters_are_separate(tmp_path: Path) -> None:
    metadata, arrays = weights("llama-dense")
    made_model = model_of(metadata, arrays, "cpu")
    path = write_adapter(tmp_path / "a.gguf", "llama", pairs(arrays, matrices(arrays)))
    adapter, ids = made_model.load_adapter(path), PROMPTS[0]
    with engine(made_model) as made:
        found = [
            scores(asked)
            for loras in (None, {adapter: 1.0}, None, {adapter: 1.0})
            for asked in ask_all(made, [request(ids, 0, prompt_logprobs=0, loras=loras)])
        ]
        assert n_computed(made) == 2 * (len(ids) - 1)
    assert found[0] == found[2] and found[1] == found[3]
    assert (
        abs(sum(one.logprob or 0 for one in found[0]) - sum(one.logprob or 0 for one in found[1]))
        > 1
    )


def test_known_scores_are_limited() -> None:
    known = KnownScores(most=12)

    def text(*ids: int, n_top: int = 0) -> ScoredText:
        made = ScoredText((), list(ids), n_top)
        top = tuple((i, -1.0) for i in range(n_top))
        assert known.add(made, [Score(id, -float(id), top) for id in ids[1:]])
        return made

    text(1, 2, 3, 4, 5, n_top=1)
    assert known.size == 8 and len(known) == 1
    found = known.find(ScoredText((), [1, 2, 3, 9, 5], 0))
    assert found == [Score(2, -2.0, ()), Score(3, -3.0, ())]
    assert known.find(ScoredText((), [1, 2, 3], 2)) == []  # more likely tokens than are known
    assert known.find(ScoredText("other", [1, 2, 3], 0)) == []
    same = ScoredText((), [1, 2, 3, 4, 5, 6], 1)
    assert known.add(same, known.find(same)) and known.size == 8 and len(known) == 1
    text(7, 8, 9, 10)
    known.find(ScoredText((), [1, 2], 0))  # the first text is now the last used
    text(5, 6, 7)
    assert known.size == 10 and known.find(ScoredText((), [7, 8], 0)) == []
    assert not known.add(text(3, 4), [Score(5, float("nan"), ())])
    assert known.find(ScoredText((), [3, 4], 0)) == []
    text(*range(20))  # longer than the limit
    assert known.size == len(known) == 0
