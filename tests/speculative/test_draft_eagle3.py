"""Drafts from what a model's layers get: those of the plain loop, and the text is as without."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from ggml_py.errors import ContextError, HParamsError, ModelError, WeightsError
from llama_py.batch import F32, Batch
from llama_py.context import Context
from llama_py.decoding.drafting.drafters.draft_eagle3 import DraftEagle3
from llama_py.decoding.speculator import Speculator
from llama_py.model import Model
from tests.speculative.scripted import greedy, plain, run
from tests.speculative.watched import Watched, watch
from tests.support.live_models import EXACT, live, made, model_of, tokens

HOW: dict[str, Any] = {"spec_type": "draft-eagle3", "spec_draft_adaptive": False}


@cache
def draft(name: str, *layers: int) -> Model:
    """A draft that reads what these layers get."""
    return model_of(*made(name, target_layers=[*layers]), "cpu")


class ByHand:
    """The plain loop: at each position a state and the token after it, then the guesses."""

    def __init__(self, target: Model, model: Model) -> None:
        self.target = Context(target, **EXACT)
        self.ctx = Context(model, **EXACT, target=self.target)
        self.layers, n = model.architecture.draft_rules.target_layers, target.hparams.n_layer
        self.target.set_embeddings_layer_inp(il for il in self.layers if il < n)
        self.target.set_embeddings_nextn(True)
        self.ctx.set_embeddings_nextn(True)

    def __call__(self, text: Sequence[int], n: int) -> list[int]:
        for ctx in (self.target, self.ctx):
            ctx.clear()
        self.target.decode(text)
        rows = [self.target.layer_inp.get(il, self.target.h_nextn) for il in self.layers]
        features = np.concatenate([r for r in rows if r is not None], axis=1)
        ids, states = list(text), list(self.ctx.encode(Batch(embd=features))[:-1])
        for _ in range(n):
            self.ctx.clear()
            wanted = [True] * len(states)
            logits = self.ctx.decode(Batch(ids[1:], np.array(states), outputs=wanted))
            assert self.ctx.h_nextn is not None
            ids.append(greedy(logits[-1]))
            states.append(self.ctx.h_nextn[-1])
        return ids[len(text) :]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    return watch(monkeypatch, DraftEagle3)


@pytest.mark.parametrize(
    ("target", "name", "layers", "n_seq", "n_batch"),
    [
        ("gpt-oss-moe", "eagle3-own", (0, 1, 2), 1, 64),
        ("llama-dense", "eagle3-shared", (1, 0, 1), 3, 64),
        ("qwen3next-moe", "eagle3-own", (2, 0, 1), 2, 8),
    ],
)
def test_drafts_are_those_of_the_plain_loop(
    target: str,
    name: str,
    layers: tuple[int, ...],
    n_seq: int,
    n_batch: int,
    watched: type[Watched],
) -> None:
    one, model = live(target, "cpu"), draft(name, *layers)
    sizes = {"n_ctx": 256 * n_seq, "n_batch": n_batch, "n_ubatch": n_batch}
    ctx = Context(one, **{**EXACT, **sizes}, n_seq_max=n_seq)
    with Speculator(ctx, **HOW, model_draft=model) as speculator:
        run(speculator, {s: tokens(12 + 2 * s, s) for s in range(n_seq)}, 7)
        run(speculator, {0: [3, 1, 4]}, 3)  # the first sequence goes on
    by_hand = ByHand(one, model)
    assert len(watched.drafts) >= 4
    for text, guess in zip(watched.texts, watched.drafts, strict=True):
        assert guess == by_hand(text, 3)[: len(guess)]
        assert len(guess) == 3


@pytest.mark.parametrize("n_rs_seq", [0, 3])
@pytest.mark.parametrize(
    "target", ["llama-dense", "gpt-oss-moe", "qwen3next-moe", "lfm2-dense", "gemma3-dense"]
)
def test_the_text_is_as_without(target: str, n_rs_seq: int) -> None:
    """Also where states go back to a checkpoint; of one draft tokens are right."""
    prompt, answer = plain(target, 40)
    model = live(target, "cpu")
    frequent = max(answer, key=answer.count)
    metadata, arrays = made("eagle3-own", target_layers=[0, 1, 0])
    arrays["d2t"] = np.array([frequent])
    arrays["output.weight"] = arrays["output.weight"][:, :, :1]
    for one in (draft("eagle3-own", 0, 1, 0), model_of(metadata, arrays, "cpu")):
        ctx = Context(model, **EXACT, n_rs_seq=n_rs_seq)
        with Speculator(ctx, **HOW, model_draft=one) as made_one:
            assert run(made_one, {0: prompt}, 40)[0][:40] == answer
            counts = made_one.statistics["draft-eagle3"]
    assert counts.n_accepted > 0


def test_nothing_is_kept_for_it_afterwards() -> None:
    ctx = Context(live("llama-dense", "cpu"), **EXACT)
    with Speculator(ctx, **HOW, model_draft=draft("eagle3-shared", 1, 0, 1)):
        assert ctx.cparams.embeddings_layer_inp == (0, 1)
    assert not ctx.cparams.gives_more


def test_wrong_pairs() -> None:
    def other(**keys: Any) -> Model:
        return model_of(*made("eagle3-own", **keys), "cpu")

    wide = other(target_hidden_size=32)
    cases: list[tuple[str, Model | None, str]] = [
        ("llama-dense", None, r"of its type; pass it as model_draft \(-md\), got none"),
        ("llama-dense", live("llama-dense", "cpu"), r"got live.gguf \(llama\)"),
        ("llama-dense", wide, "is a draft model for embedding length 32, but live.gguf has 64"),
        ("llama-dense", draft("eagle3-own", 0, 1, 3), "layer 3, but live.gguf has 2 layers"),
        ("llama-dense", draft("eagle3-own", 0, 1, 2), "do not expose their last hidden states"),
        ("hy_v4-moe", draft("eagle3-own", 0, 1, 1), "'hy_v4' do not expose the input of layer 0"),
    ]  # fmt: skip
    for target, model, message in cases:
        ctx = Context(live(target, "cpu"), **EXACT)
        with pytest.raises((ContextError, ModelError), match=message) as e:
            Speculator(ctx, **HOW, model_draft=model)
        assert "\n" not in str(e.value)


def test_alone_it_does_nothing() -> None:
    model = draft("eagle3-own", 0, 1, 0)
    with pytest.raises(ContextError, match="are draft models; pass this one as model_draft"):
        model.generate([1, 2])
    with pytest.raises(ContextError, match="embd has rows of h_nextn"):
        Context(model, **EXACT, target=Context(live("llama-dense", "cpu"), **EXACT)).decode([1])


def test_its_states_are_of_its_own_width() -> None:
    ctx = ByHand(live("llama-dense", "cpu"), draft("eagle3-shared", 0, 1, 0)).ctx
    with pytest.raises(ContextError, match=r"embd must have shape \[1, 192\], got \[1, 64\]"):
        ctx.encode(Batch(embd=np.zeros((1, 64), np.float32)))
    rows: F32 = ctx.encode(Batch(embd=np.ones((2, 192), np.float32)))
    assert rows.shape == (2, 64)


@pytest.mark.parametrize("id", [-1, 64, 2**40])
def test_tokens_that_there_are_not(id: int) -> None:
    metadata, arrays = made("eagle3-own")
    arrays["d2t"] = arrays["d2t"].copy()
    arrays["d2t"].flat[5] = id
    with pytest.raises(WeightsError, match=rf"'d2t' must be in \[0, 64\), got {id}"):
        model_of(metadata, arrays, "cpu")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"target_layers": [0, 1]}, "must have 3 layers"),
        ({"block_count": 2}, "must be 1"),
        ({"target_layers": []}, "must have 3 layers"),
        ({"target_hidden_size": 0}, "at least 1"),
    ],
)
def test_keys_that_do_not_fit(keys: dict[str, Any], message: str) -> None:
    metadata, arrays = made("eagle3-own")
    metadata |= {f"eagle3.{k}": v for k, v in keys.items()}
    with pytest.raises(HParamsError, match=message):
        model_of(metadata, arrays, "cpu")
