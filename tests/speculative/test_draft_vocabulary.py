"""Drafts of few tokens: their rows of the head, and the tokens of the text."""

from __future__ import annotations

import numpy as np
import pytest

from llama_py.context import Context
from llama_py.decoding.drafting.draft_vocabulary import draft_vocabulary
from llama_py.decoding.drafting.drafters.draft_mtp import DraftMtp
from llama_py.decoding.drafting.drafters.draft_simple import DraftSimple
from llama_py.decoding.speculator import Speculator
from tests.speculative.scripted import run
from tests.support.live_models import EXACT, changed, model_of, tokens

MODEL = changed("qwen35moe-mtp")


def context() -> Context:
    return Context(model_of(*MODEL, "cpu", load_mtp=True), **EXACT)


@pytest.mark.parametrize("device", ["cpu", "ref", "opencl"])
def test_logits_are_those_of_the_whole_head(device: str) -> None:
    model = model_of(*MODEL, device, load_mtp=True)
    whole, few = (Context(model, **EXACT) for _ in range(2))
    vocabulary = draft_vocabulary(few, 48)
    assert vocabulary is not None and vocabulary.ids.size == 48
    text = tokens(9)
    before = few.decode(text)
    assert before.shape == (1, 48)
    late = [i for i in range(whole.n_vocab) if i not in vocabulary.ids][:3]
    vocabulary.add(late)
    few.clear()
    assert {*late} <= {*vocabulary.ids.tolist()}
    expected = whole.decode(text)[:, vocabulary.ids]
    np.testing.assert_allclose(few.decode(text), expected, rtol=1e-5, atol=1e-5)


def test_tokens_of_the_text_follow_one_another() -> None:
    ctx = context()
    found = draft_vocabulary(ctx, 32)
    assert found is not None
    first, n_seen = found.ids[:28].tolist(), 4
    late = [i for i in range(ctx.n_vocab) if i not in found.ids][:6]
    found.add(late[:n_seen])
    assert found.ids[28:].tolist() == late[:n_seen]
    found.add([late[3], late[4], first[0], late[4], late[5]])  # known ones take no place
    assert found.ids[28:].tolist() == [late[4], late[5], late[2], late[3]]
    assert found.ids[:28].tolist() == first


def test_tokens_that_control_a_conversation_are_kept() -> None:
    ctx = context()
    types = np.ones(ctx.n_vocab, np.int32)
    types[[ctx.n_vocab - 1, ctx.n_vocab - 5]] = 3, 4
    ctx.model.file.metadata["tokenizer.ggml.token_type"] = types.tolist()
    found = draft_vocabulary(ctx, 32)
    assert found is not None
    assert found.ids[:28].tolist() == [*range(26), ctx.n_vocab - 5, ctx.n_vocab - 1]


@pytest.mark.parametrize("n", [0, 128, 10**6])
def test_a_head_that_is_not_cut(n: int) -> None:
    ctx = context()
    assert draft_vocabulary(ctx, n) is None
    assert ctx.decode(tokens(3)).shape == (1, ctx.n_vocab)


@pytest.mark.parametrize(("spec_type", "least"), [("draft-mtp", 0), ("draft-simple", 20)])
def test_text_is_the_same(spec_type: str, least: int) -> None:
    """A model that drafts for itself is right; a random NextN layer is not."""
    model = model_of(*MODEL, "cpu", load_mtp=True)
    texts, found = [], []
    for n in (0, 40):
        ctx = Context(model, **EXACT, n_rs_seq=3)
        options = {"spec_type": spec_type, "model_draft": model, "spec_draft_vocab": n}
        with Speculator(ctx, **options) as made:
            texts.append(run(made, {0: tokens(7)}, 40))
            (one,) = made.drafts._drafters.values()
            assert isinstance(one, DraftMtp | DraftSimple)
            few = one.few[0] if isinstance(one, DraftMtp) else one.few
            assert (few is None) == (n == 0)
            found.append(next(iter(made.statistics.values())))
    assert texts[0][0][:40] == texts[1][0][:40]
    assert found[1].n_drafts > 0 and found[1].n_accepted >= least
