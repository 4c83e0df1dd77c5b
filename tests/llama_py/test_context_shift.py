"""A full context goes on without its middle, where what it keeps can move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError
from llama_py.context_shift import can_shift
from llama_py.prefix import Prefix
from tests.commands import DEMO, tiny_model

N_CTX, PROMPT = 256, list(range(3, 23))


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Iterator[llama_py.Model]:
    with llama_py.Model(tiny_model(tmp_path_factory.mktemp("shift")), "cpu") as model:
        yield model


def tokens(pieces: Iterator[llama_py.Piece]) -> tuple[list[int], int]:
    found = list(pieces)
    return [p.token for p in found if p.token is not None], found[-1].n_discarded


def never_ends(ids: Any, logits: Any) -> Any:
    logits = logits.copy()
    logits[:3] = -np.inf
    return logits


@pytest.mark.parametrize("n_keep,kept", [(0, 0), (7, 7), (-1, 20)])
def test_half_of_what_is_not_kept_leaves(dense: llama_py.Model, n_keep: int, kept: int) -> None:
    """As if it were done by hand: removed, moved, and then the next token."""
    kept += int(dense.tokenizer.add_bos) if n_keep >= 0 else 0
    how: Any = {"context_shift": True, "n_keep": n_keep, "max_tokens": 300}
    ctx = dense.context(N_CTX)
    found, n_discarded = tokens(llama_py.stream(ctx, PROMPT, logits_processors=[never_ends], **how))
    n = (N_CTX - kept) // 2
    assert len(found) == 300 and n_discarded == n
    by_hand, ctx = list[int](), dense.context(N_CTX)
    logits = ctx.decode(PROMPT)[-1]
    for i in range(300):
        by_hand.append(int(np.argmax(never_ends(by_hand, logits))))
        if i + len(PROMPT) == N_CTX:
            ctx.memory.seq_rm(0, kept, kept + n)
            ctx.memory.seq_add(0, kept + n, N_CTX, -n)
        logits = ctx.decode([by_hand[-1]])[-1]
    assert found == by_hand


def test_without_it_a_full_context_is_the_end(dense: llama_py.Model) -> None:
    ctx = dense.context(N_CTX)
    pieces = list(llama_py.stream(ctx, PROMPT, logits_processors=[never_ends]))
    assert pieces[-1].finish_reason == "length" and pieces[-1].n_discarded == 0
    assert len(pieces) == N_CTX - len(PROMPT) + 1


def test_what_left_is_not_taken_for_what_is_there(dense: llama_py.Model) -> None:
    """A prompt that goes on from a shifted sequence reuses what was before the gap only."""
    ctx = dense.context(N_CTX)
    prefix = Prefix(ctx)
    ids = prefix.start(PROMPT)
    how: Any = {"context_shift": True, "n_keep": 9, "logits_processors": [never_ends]}
    found, n_discarded = tokens(llama_py.stream(ctx, ids, max_tokens=240, **how))
    assert n_discarded > 0
    prefix.add([*ids, *found])
    kept = 9 + int(dense.tokenizer.add_bos)
    assert prefix.tokens == PROMPT[:kept]
    again = [*PROMPT, *found[:30]]
    assert prefix.start(again) == again[kept:]


def test_a_model_goes_on_after_a_shift(dense: llama_py.Model) -> None:
    """Its next prompt is computed of what is really there."""
    how: Any = {"logits_processors": [never_ends], "temp": 0}
    n_train = dense.hparams.n_ctx_train
    prompt = (PROMPT * (n_train // len(PROMPT)))[: n_train - 8]
    before = list(dense.stream(prompt, max_tokens=20, context_shift=True, n_keep=4, **how))
    assert before[-1].n_discarded > 0
    said = [p.token for p in before if p.token is not None]
    following = [*prompt[: n_train // 2], *said]
    again = [p.token for p in dense.stream(following, max_tokens=5, **how)]
    fresh = llama_py.stream(dense.context(n_train), following, max_tokens=5, **how_of(how))
    assert again == [p.token for p in fresh]


def how_of(how: dict[str, Any]) -> dict[str, Any]:
    return {"logits_processors": how["logits_processors"]}


def test_an_interrupt_in_a_shift(dense: llama_py.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of the tokens behind what is kept, though no piece told of a shift."""
    ctx = dense.context(N_CTX)
    prefix = Prefix(ctx)
    ids = prefix.start(PROMPT)
    how: Any = {"context_shift": True, "n_keep": 9, "logits_processors": [never_ends]}
    move = type(ctx.memory).seq_add

    def interrupted(*args: Any) -> None:
        move(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(ctx.memory), "seq_add", interrupted)
    found = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(p.token for p in llama_py.stream(ctx, ids, **how))
    prefix.add([*ids, *found])
    assert prefix.tokens == PROMPT[: 9 + int(dense.tokenizer.add_bos)]


def test_what_cannot_be_shifted_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with llama_py.load(DEMO) as model:
        ctx = model.context(N_CTX)
        assert not can_shift(ctx)
        (*_, last) = llama_py.stream(ctx, PROMPT, context_shift=True, max_tokens=3)
        assert last.finish_reason == "length" and "context shift is not possible" in caplog.text


def test_a_prompt_that_fills_the_context_cannot_be_kept_whole(dense: llama_py.Model) -> None:
    ctx = dense.context(N_CTX)
    how: Any = {"context_shift": True, "n_keep": -1, "logits_processors": [never_ends]}
    prompt = (PROMPT * 13)[:N_CTX]
    with pytest.raises(ContextError, match="of 256 tokens 256 are kept, so none can go"):
        list(llama_py.stream(ctx, prompt, max_tokens=3, **how))
