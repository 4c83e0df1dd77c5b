"""Several at once are what each is alone, and nobody is in anybody's way."""

from __future__ import annotations

import pytest

from ggml_py.errors import ContextError, ModelError
from llama_py.serving import Busy, EngineClosed, TooLong
from tests.serving.engines import WAIT, alone, ask, ask_all, engine, request, stall
from tests.support.live_models import tokens

# keys and values; windows; states and keys; states; latent keys and states
MODELS = ["llama-dense", "gemma3-dense", "qwen35-dense", "mamba2-dense", "kimi-linear-moe"]
PROMPTS = [tokens(n, seed) for seed, n in enumerate([3, 41, 1, 17, 30, 9])]


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_several_at_once_are_what_each_is_alone(name: str, unified: bool) -> None:
    expected = [alone(name, ids) for ids in PROMPTS]
    with engine(name, kv_unified=unified) as made:
        found = ask_all(made, [request(ids) for ids in PROMPTS])
        assert [one.tokens for one in found] == expected
        total = made.metrics().total
        assert total.ended == {"length": len(PROMPTS)}
        assert total.n_gen == 16 * len(PROMPTS) and total.n_prompt == sum(map(len, PROMPTS))
        assert total.n_busy > 2 * total.n_steps  # they were in the same steps
        again = ask_all(made, [request(one) for one in PROMPTS])
        assert [one.tokens for one in again] == expected
        reused = [one.end().timings.n_reused for one in again]
        assert reused == [len(ids) - 1 for ids in PROMPTS]


@pytest.mark.parametrize("unified", [False, True])
def test_an_encoder_and_a_decoder_answer_one_after_the_other(unified: bool) -> None:
    with engine("t5-dense", kv_unified=unified) as made:
        assert made.n_slots == 1
        found = ask_all(made, [request(ids) for ids in PROMPTS])
        assert [one.tokens for one in found] == [alone("t5-dense", ids) for ids in PROMPTS]
        timings = [one.end().timings for one in found]
        assert [t.n_done for t in timings] == [len(ids) for ids in PROMPTS]
        assert made.metrics().total.n_prompt == sum(map(len, PROMPTS))
        for bad, words in [
            (request(tokens(65)), "n_ubatch"),
            (request([1], prompt_logprobs=0), "prompt_logprobs"),
        ]:
            with pytest.raises(ContextError, match=words):
                ask(made, bad)


def test_answers_go_on_while_a_long_prompt_is_read() -> None:
    with engine("qwen35-dense", checkpoint_min_step=0) as made:
        answered, go_on = list[int](), stall(made, 4)
        first = ask(made, request(tokens(5), n=200))
        n = first.until(1)
        long = request(tokens(200, 1), n=2)
        second = made.submit(long, lambda _: answered.append(len(first.tokens)))
        go_on.set()
        assert second.wait(WAIT) and first.end().finish_reason == "length"
        # 199 tokens, 8 in a step beside the answer's one, and then the last
        assert answered[-2] - answered[0] >= 199 // 8 and answered[0] >= n


def test_what_does_not_fit_is_told_at_once() -> None:
    with engine("llama-dense", max_queue=2) as made:
        for bad, error, words in [
            (request([]), ContextError, "empty"),
            (request(tokens(257)), TooLong, "257 tokens, but a sequence of this context holds 256"),
            (request([10**6]), ContextError, "token must be in .*got 1000000"),
            (request([1], id_slot=4), ContextError, "id_slot must be .*got 4"),
            (request([1], spec_type="draft-mtp"), ContextError, "n_drafts"),
            (request([1], seq_id=1), ContextError, "id_slot"),
            (request([1], logit_bias={10**6: 1.0}), ModelError, "must be in the vocabulary"),
        ]:
            with pytest.raises(error, match=words):
                made.submit(bad, lambda _: None)
        assert made.metrics().total.ended == {}
    with pytest.raises(EngineClosed):
        made.submit(request([1]), lambda _: None)


def test_the_queue_has_an_end() -> None:
    with engine("llama-dense", n_seq_max=1, n_ctx=256, max_queue=2) as made:
        go_on = stall(made, 4)
        running = ask(made, request([1], n=-1))
        running.until(0)
        waiting = [ask(made, request([1], n=1)) for _ in range(2)]
        with pytest.raises(Busy, match="2 requests are waiting"):
            ask(made, request([1], n=1))
        go_on.set()
        assert [one.end().finish_reason for one in [running, *waiting]] == ["length"] * 3


def test_whoever_is_told_finds_it_counted() -> None:
    with engine("llama-dense") as made:
        counted, total = list[int](), made._scheduler.metrics
        handle = made.submit(request([1], 9), lambda event: counted.append(total.n_gen))
        assert handle.wait(WAIT) and counted[-9:] == [*range(1, 10)]


@pytest.mark.parametrize("name", MODELS)
def test_graphs_are_built_before_the_first_request(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is computed, and memory stays empty."""
    with engine(name, kv_unified=False, n_seq_max=3) as made:
        memory, zeroed = made._ctx.memory, list[bool]()
        clear = memory.clear
        monkeypatch.setattr(memory, "clear", lambda data=True: zeroed.append(data) or clear(data))
        made._later(made._build_graphs()).result(WAIT)
        assert zeroed == [False] * 3  # zeroing touches all pages of a large cache
        runner = made._ctx.runner
        assert {res.params.ubatch.n_seqs for res, _ in runner.graphs} == {1, 2, 3}
        assert runner.ubatch is None and not any(slot.n_held for slot in made.slots())
        ids = [res for res, _ in runner.graphs]
        asked = ask_all(made, [request([s + 1], 8) for s in range(3)])
        assert [one.tokens for one in asked] == [alone(name, [s + 1], 8) for s in range(3)]
        kept = {id(res) for res, _ in runner.graphs}
        assert sum(id(res) in kept for res in ids) == 3
        made._later(made._build_graphs()).result(WAIT)  # memory is in use
        assert kept == {id(res) for res, _ in runner.graphs}
