"""What a sequence holds is not computed again, and what differs is taken out."""

from __future__ import annotations

import pytest

from llama_py.context import Context
from llama_py.decoding.prefix import Prefix
from tests.support.live_models import EXACT, live, nmse, tokens

MODELS = ["llama-dense", "qwen35moe-moe", "mamba2-dense"]  # the others keep states
FIRST = tokens(12)


def prefix(name: str, **options: int) -> Prefix:
    return Prefix(Context(live(name), **EXACT, **options))


def ask(p: Prefix, ids: list[int]) -> int:
    """Decode what is missing of a prompt; how much was there. Its logits are a fresh context's."""
    before = p.n_reused
    rest = p.start(ids)
    n = p.n_reused - before
    assert rest == ids[n:]
    found = p.cache.decode(rest, p.seq_id)
    p.add(rest)
    assert p.tokens == ids
    assert nmse(Context(p.ctx.model, **EXACT).decode(ids), found) < 1e-9
    return n


@pytest.mark.parametrize("name", MODELS)
def test_a_prompt_that_goes_on_is_not_computed_again(name: str) -> None:
    p = prefix(name)
    assert [ask(p, ids) for ids in (FIRST[:5], FIRST[:9], FIRST)] == [0, 5, 9]
    assert p.n_reused == 14


@pytest.mark.parametrize("name", MODELS)
def test_what_differs_is_taken_out(name: str) -> None:
    """Of keys and values; a state cannot go back, but to its nearest snapshot."""
    p = prefix(name, checkpoint_min_step=5)
    ask(p, FIRST)
    assert ask(p, [*FIRST[:7], *tokens(4, seed=9)]) == (7 if name == "llama-dense" else 5)
    assert p.last_match is not None and p.last_match.n_same == 7


@pytest.mark.parametrize("name", MODELS)
def test_the_same_prompt_needs_its_last_token(name: str) -> None:
    p = prefix(name)
    ask(p, FIRST)
    assert ask(p, FIRST) == len(FIRST) - 1


def test_a_state_goes_back_as_far_as_it_is_kept() -> None:
    p = prefix("qwen35moe-moe", n_rs_seq=3)
    ask(p, FIRST)
    assert ask(p, [*FIRST[:10], 1, 2, 3]) == 10


def test_a_window_that_is_gone_is_computed_again() -> None:
    p = Prefix(Context(live("gemma3-dense"), **{**EXACT, "n_ctx": 512}))
    ids = tokens(400)
    p.ctx.decode(p.start(ids))
    p.add(ids)
    assert p.start([*ids[:5], 1]) == [*ids[:5], 1]
    assert p.ctx.memory.seq_pos_max(0) == -1


def test_the_last_token_of_an_answer_is_not_held() -> None:
    p = prefix("llama-dense")
    rest = p.start(FIRST)
    p.ctx.decode(rest)
    p.add([*rest, 7])  # 7 was chosen, but not decoded
    assert p.tokens == FIRST
    assert ask(p, [*FIRST, 7, 8]) == len(FIRST)


def test_what_others_did_to_the_sequence_is_taken_out_too() -> None:
    p = prefix("llama-dense")
    ask(p, FIRST)
    p.ctx.decode([1, 2, 3])
    assert ask(p, [*FIRST, 4]) == len(FIRST)
    p.ctx.clear()
    assert ask(p, FIRST) == 0


def test_other_sequences_are_left_alone() -> None:
    p = Prefix(Context(live("llama-dense"), **{**EXACT, "n_ctx": 512}, n_seq_max=2), seq_id=1)
    p.ctx.decode([1, 2, 3])
    ask(p, FIRST)
    ask(p, [5, 6])
    p.clear()
    assert p.tokens == []
    assert [p.ctx.memory.seq_pos_max(s) for s in (0, 1)] == [2, -1]
    assert ask(p, FIRST) == len(FIRST) - 1  # from host memory
