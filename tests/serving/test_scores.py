"""Log probabilities of a prompt's tokens are those of one pass over it, whatever else goes on."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_py.errors import ContextError
from llama_py.context import Context
from llama_py.serving import Score
from tests.serving.engines import Asked, alone, ask, ask_all, engine, model, request
from tests.support.live_models import EXACT, tokens

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
        for _ in range(2):  # the second time all is held, and computed all the same
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
