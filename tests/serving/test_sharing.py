"""What one slot has, or is about to have, no other computes again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ggml_py.errors import ContextError
from llama_py.serving.common_marks import mark_beginnings
from tests.serving.engines import WAIT, alone, ask, ask_all, engine, request
from tests.support.adapters import matrices, pairs, write_adapter
from tests.support.live_models import made as weights
from tests.support.live_models import model_of, tokens

KINDS = ["llama-dense", "gemma3-dense", "qwen35-dense", "mamba2-dense", "kimi-linear-moe"]
PREFIX = tokens(70, 3)


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_a_prefix_that_comes_several_times_at_once_is_computed_once(
    name: str, unified: bool
) -> None:
    prompts = [[*PREFIX, *tokens(5 + i, 50 + i)] for i in range(4)]
    with engine(name, kv_unified=unified) as made:
        found = ask_all(made, [request(ids, 8) for ids in prompts])
        assert [one.tokens for one in found] == [alone(name, ids, 8) for ids in prompts]
        n_same = 70
        assert [one.end().timings.n_reused for one in found] == [0, n_same, n_same, n_same]
        total = made.metrics().total
        assert total.n_prompt == 70 + 5 + 6 + 7 + 8
        # and later, in whatever slot
        later = [*PREFIX, *tokens(9, 77)]
        one = ask(made, request(later, 8, id_slot=3))
        assert one.end().timings.n_reused == n_same and one.tokens == alone(name, later, 8)


@pytest.mark.parametrize("name", KINDS)
def test_several_answers_to_one_prompt(name: str) -> None:
    with engine(name) as made:
        found = ask_all(made, [request(PREFIX, 8, temp=1.0, seed=i) for i in range(4)])
        assert len({tuple(one.tokens) for one in found}) == 4
        assert [one.end().timings.n_reused for one in found] == [0, 69, 69, 69]
        again = ask_all(made, [request(PREFIX, 8, temp=1.0, seed=i) for i in range(4)])
        assert [one.tokens for one in again] == [one.tokens for one in found]


@pytest.mark.parametrize("name", ["llama-dense", "qwen35-dense"])
def test_a_conversation_goes_on_where_it_stands(name: str) -> None:
    """In its own slot, though others come in between, and what is in no slot is in host memory."""
    with engine(name, n_seq_max=2, n_ctx=512) as made:
        text = tokens(20, 1)
        for turn in range(4):
            one = ask(made, request(text, 5))
            t = one.end().timings
            assert t.n_computed == (20 if turn == 0 else 4)
            assert one.tokens == alone(name, text, 5)
            text = [*text, *one.tokens, *tokens(3, 100 + turn)]
            ask_all(made, [request(tokens(30, 10 * turn + i), 3) for i in range(turn)])


@pytest.mark.parametrize("name", ["llama-dense", "gemma3-dense", "qwen35-dense"])
def test_more_conversations_than_slots(name: str) -> None:
    """What no slot has any more is in host memory: the new tokens of each turn are computed."""
    texts = [[*PREFIX, *tokens(9, 20 + i)] for i in range(6)]
    with engine(name) as made:
        for turn in range(4):
            for i, one in enumerate(ask_all(made, [request(ids, 5) for ids in texts])):
                n_computed = one.end().timings.n_computed
                assert n_computed == (4 if turn else 9 if i else 79)
                if turn == 3:
                    assert one.tokens == alone(name, texts[i], 5)
                texts[i] = [*texts[i], *one.tokens, *tokens(3, 50 + 6 * turn + i)]


def test_marks_of_prompts_with_common_beginnings() -> None:
    """Each prompt is marked where others diverge from it, if that is worth it."""
    stem, other = tokens(40, 1), tokens(50, 2)
    first, second = [*stem, 1, *other], [*stem, 2, 7]
    prompts = [[*first, 3], [5, 6], [*first, 4], second, [*stem[:20], 9], second]
    found = mark_beginnings([request(ids) for ids in prompts])
    assert found == [[40, 91], None, [40, 91], [40, 41, 42], None, [40, 41, 42]]
    found = mark_beginnings([request(ids, 0, prompt_logprobs=0) for ids in prompts])
    assert found == [[39, 90], None, [39, 90], [39, 41], None, [39, 41]]
    assert mark_beginnings([request([1])]) == [None] and mark_beginnings([]) == []


@pytest.mark.parametrize("n_top", [None, 0])
@pytest.mark.parametrize("name", KINDS)
def test_marks_are_continued_after_the_first_prompt_has_ended(name: str, n_top: int | None) -> None:
    prompts = [[*PREFIX, *tokens(5 + i, 50 + i)] for i in range(3)]
    asked = [request(ids, 1, prompt_logprobs=n_top) for ids in prompts]
    asked = [replace(one, marks=m) for one, m in zip(asked, mark_beginnings(asked), strict=True)]
    with engine(name, kv_unified=True, checkpoint_min_step=0) as made:
        for one in asked:
            assert ask(made, one).end().error is None
        n_again = 0 if n_top is None else 2
        assert made.metrics().total.n_prompt == 70 + 5 + 6 + 7 + n_again


def test_without_cache_prompt_all_is_computed() -> None:
    with engine("qwen35-dense") as made:
        for _ in range(2):
            one = ask(made, request(PREFIX, 4, cache_prompt=False))
            assert one.end().timings.n_reused == 0
        assert ask(made, request(PREFIX, 4)).end().timings.n_reused == 69


def test_a_chosen_slot_is_waited_for() -> None:
    with engine("llama-dense") as made:
        first = ask(made, request([1], 60, id_slot=2))
        second = ask(made, request([2], 4, id_slot=2))
        assert second.end().slot == 2 == first.end().slot
        assert second.end().timings.n_gen == 4
        assert first.handle is not None and first.handle.wait(0)


@pytest.mark.parametrize("name", ["llama-dense", "gemma3-dense", "qwen35-dense"])
def test_slots_are_saved_restored_and_erased(name: str, tmp_path: Path) -> None:
    file = tmp_path / "slot.bin"
    with engine(name) as made:
        one = ask(made, request(PREFIX, 6, id_slot=1))
        n_tokens, n_bytes = made.save_slot(1, file).result(WAIT)  # waits until it is idle
        assert one.end() and n_tokens == 75 and n_bytes == file.stat().st_size
        assert made.erase_slot(1).result(WAIT) == 75
        assert made.slots()[1].n_held == 0
        with pytest.raises(ContextError, match=r"slot must be in \[0, 4\), got 4"):
            made.erase_slot(4)
    with engine(name) as made:
        assert made.restore_slot(2, file).result(WAIT) == (75, n_bytes)
        assert made.slots()[2].n_held == 75
        again = ask(made, request([*PREFIX, *one.tokens, 1], 4))
        assert (again.end().slot, again.end().timings.n_reused) == (2, 75)
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(ContextError, match=r"slot\.bin: the state is damaged"):
            made.restore_slot(2, file).result(WAIT)


def test_adapters_are_a_requests_own(tmp_path: Path) -> None:
    name = "llama-dense"
    metadata, arrays = weights(name)
    model = model_of(metadata, arrays, "cpu")
    path = write_adapter(tmp_path / "a.gguf", "llama", pairs(arrays, matrices(arrays)))
    adapter = model.load_adapter(path)
    plain = alone(model, PREFIX, 8)
    with engine(model) as made:
        both = [request(PREFIX, 8), request(PREFIX, 8, loras={adapter: 4.0})] * 2
        found = ask_all(made, both)
        assert [one.tokens == plain for one in found] == [True, False, True, False]
        assert found[1].tokens == found[3].tokens
        assert [one.end().timings.n_reused for one in found] == [0, 0, 69, 69]
        made.set_loras({adapter: 4.0})
        assert ask_all(made, both[:1])[0].tokens == found[1].tokens
