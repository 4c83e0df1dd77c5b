"""Drafts of layers that attend to what the model has stored: those of the plain loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pytest

from ggml_py.errors import ContextError, HParamsError, ModelError
from llama_py.batch import Batch
from llama_py.context import Context
from llama_py.decoding.drafting.drafter import DraftRequest
from llama_py.decoding.drafting.drafters import _shared_memory
from llama_py.decoding.drafting.drafters._shared_memory import SharedMemoryDrafter
from llama_py.decoding.speculator import Speculator
from llama_py.model import Model
from tests.speculative.scripted import greedy, plain, run
from tests.support.live_models import EXACT, live, made, model_of, tokens

TARGET, DRAFT = "gemma4-shared", "gemma4-assistant-dense"
HOW: dict[str, Any] = {"spec_type": "draft-mtp", "spec_draft_adaptive": False}


@cache
def draft(**keys: Any) -> Model:
    return model_of(*made(DRAFT, **keys), "cpu")


def by_hand(text: Sequence[int], n: int) -> list[int]:
    """The plain loop: the model reads the text but its last token."""
    target = Context(live(TARGET, "cpu"), **EXACT)
    target.set_embeddings_nextn(True)
    ctx = Context(draft(), **EXACT, target=target)
    ctx.set_embeddings_nextn(True)
    target.decode(text[:-1])
    assert target.h_nextn is not None
    ids, state = list(text), target.h_nextn[-1:]
    for _ in range(n):
        logits = ctx.decode(Batch(ids[-1:], state, [len(text) - 1]))
        assert ctx.h_nextn is not None
        ids.append(greedy(logits[-1]))
        state = ctx.h_nextn
    return ids[len(text) :]


@pytest.mark.parametrize(("n_seq", "unified"), [(1, False), (3, False), (2, True)])
def test_drafts_are_those_of_the_plain_loop(
    n_seq: int, unified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[int], list[int]]] = []
    plainly = SharedMemoryDrafter.draft

    def watched(self: Any, requests: Sequence[DraftRequest]) -> Mapping[int, list[int]]:
        found = plainly(self, requests)
        asked.extend((r.ids.tolist(), found[r.seq_id]) for r in requests)
        return found

    monkeypatch.setattr(SharedMemoryDrafter, "draft", watched)
    sizes = {**EXACT, "n_ctx": 256 * n_seq}
    ctx = Context(live(TARGET, "cpu"), **sizes, n_seq_max=n_seq, kv_unified=unified)
    with Speculator(ctx, **HOW, model_draft=draft()) as speculator:
        run(speculator, {s: tokens(14 + 2 * s, s) for s in range(n_seq)}, 6)
        run(speculator, {0: [3, 1, 4]}, 3)
    assert len(asked) >= 4
    for text, guess in asked:
        assert guess == by_hand(text, 3)


def test_the_text_is_as_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is guessed: all wrong, or one token again and again, which is right at times."""
    prompt, answer = plain(TARGET, 40)
    frequent = max(answer, key=answer.count)
    for vocab, guess in ((0, None), (20, None), (0, frequent)):
        ctx = Context(live(TARGET, "cpu"), **EXACT)
        if guess is not None:
            monkeypatch.setattr(_shared_memory, "likeliest", lambda *_: frequent)
        how = {**HOW, "spec_draft_vocab": vocab}
        with Speculator(ctx, **how, model_draft=draft()) as speculator:
            assert run(speculator, {0: prompt}, 40)[0][:40] == answer
            counts = speculator.statistics["draft-mtp"]
    assert counts.n_accepted > 0


def test_nothing_is_stored_and_nothing_is_kept_for_it_afterwards() -> None:
    ctx = Context(live(TARGET, "cpu"), **EXACT)
    with Speculator(ctx, **HOW, model_draft=draft()) as speculator:
        own = speculator.contexts[1]
        assert own.memory.memory_breakdown() == {}
        run(speculator, {0: tokens(9)}, 4)
        end = ctx.memory.seq_pos_max(0)
        own.clear()
        own.memory.seq_rm(0)
        assert ctx.memory.seq_pos_max(0) == end
    assert not ctx.cparams.gives_more


def test_wrong_pairs() -> None:
    heads = draft(attention__head_count_kv=1)
    wide = draft(embedding_length_out=64)
    for target, model, message in (
        (TARGET, heads, r"window\) \(1, 16, True\), but layer 3 .* has \(2,"),
        (TARGET, wide, "is a draft model for embedding length 64, but live.gguf has 32"),
        ("gemma4-moe", draft(), r"window\) \(2, 16, True\), but layer 2 .* has \(1, 24, False\)"),
        ("llama-dense", wide, "'llama' do not expose their hidden states"),
    ):
        ctx = Context(live(target, "cpu"), **EXACT)
        with pytest.raises((ContextError, ModelError), match=message) as e:
            Speculator(ctx, **HOW, model_draft=model)
        assert "\n" not in str(e.value)
    with pytest.raises(ContextError, match="are draft models"):
        Context(draft(), **EXACT)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"nextn_predict_layers": 2}, "must be block_count = 3"),
        ({"embedding_length_out": 48}, "must differ from embedding_length"),
        ({"attention.sliding_window": 0}, "at least 1"),
        ({"attention.sliding_window_pattern": 2}, "must be an array"),
    ],
)
def test_keys_that_do_not_fit(keys: dict[str, Any], message: str) -> None:
    metadata, arrays = made(DRAFT)
    metadata |= {f"gemma4-assistant.{k}": v for k, v in keys.items()}
    with pytest.raises(HParamsError, match=message):
        model_of(metadata, arrays, "cpu")
