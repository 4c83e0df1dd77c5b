"""Drafts of NextN layers: those of the plain loop, at every step, whatever was accepted before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ggml_py.errors import ContextError, ModelError
from llama_py.batch import F32, Batch
from llama_py.context import Context
from llama_py.decoding.drafting.drafters.draft_mtp import DraftMtp
from llama_py.decoding.speculator import Speculator
from llama_py.model import Model
from tests.speculative.scripted import greedy, run
from tests.speculative.watched import Watched, watch
from tests.support.live_models import EXACT, Arrays, changed, model_of, tokens, two_heads


def model(name: str, *changes: Any, **options: Any) -> Model:
    return model_of(*changed(name, *changes), "cpu", **{"load_mtp": True, **options})


class ByHand:
    """The plain loop: every token with the state before it, then the guesses with those made."""

    def __init__(self, model: Model) -> None:
        self.target = Context(model, **EXACT)
        n_heads = model.hparams.n_layer_nextn
        self.heads = [Context(model, **EXACT, mtp=True, nextn_layer=i) for i in range(n_heads)]
        for ctx in (self.target, *self.heads):
            ctx.set_embeddings_nextn(True)

    def __call__(self, text: Sequence[int], n: int) -> list[int]:
        self.target.clear()
        self.target.decode(text)
        assert self.target.h_nextn is not None
        ids = list(text)
        width = self.target.model.hparams.n_embd_hidden
        h: list[F32] = [np.zeros(width, np.float32), *self.target.h_nextn[:-1]]
        for i in range(n):
            ctx = self.heads[i % len(self.heads)]
            ctx.clear()
            logits = ctx.decode(Batch(ids, embd=np.array(h), outputs=[True] * len(ids)))
            assert ctx.h_nextn is not None
            ids.append(greedy(logits[-1]))
            h.append(ctx.h_nextn[-1])
        return ids[len(text) :]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    return watch(monkeypatch, DraftMtp)


@pytest.mark.parametrize(
    ("name", "change", "n_seq"),
    [
        ("qwen35-mtp", [], 1),
        ("qwen35moe-mtp", [], 3),
        ("qwen3next-mtp", [], 1),
        ("deepseek32-moe", [], 1),
        ("qwen3next-mtp", [two_heads], 3),
        ("step35-mtp", [two_heads], 1),
        ("mimo2-mtp", [], 1),
        ("bailingmoe3-mtp", [], 1),
        ("deepseek4-mtp", [], 1),
        ("deepseek2-mtp", [], 1),
        ("glm5-next-mtp", [], 1),
        ("mellum-window", [], 2),
        ("qwen4exp-blocks", [], 3),
    ],
)
def test_drafts_are_those_of_the_plain_loop(
    name: str, change: list[Any], n_seq: int, watched: type[Watched]
) -> None:
    one = model(name, *change)
    ctx = Context(one, **{**EXACT, "n_ctx": 256 * n_seq}, n_seq_max=n_seq, n_rs_seq=3)
    prompts = {s: tokens(5 + 2 * s, s) for s in range(n_seq)}
    with Speculator(ctx, spec_type="draft-mtp", spec_draft_adaptive=False) as made:
        run(made, prompts, 7)
        run(made, {0: [3, 1, 4]}, 3)  # the first sequence goes on: the last token comes again
    n, by_hand = 2 if change else 3, ByHand(one)
    assert len(watched.drafts) >= 4
    for text, guess in zip(watched.texts, watched.drafts, strict=True):
        assert guess == by_hand(text, n)[: len(guess)]
        assert len(guess) in (n, 0)


def test_long_prompts_are_read_at_once(watched: type[Watched]) -> None:
    """States are kept of few tokens."""
    one = model("qwen35moe-mtp")
    ctx = Context(one, **{**EXACT, "n_batch": 8, "n_ubatch": 8}, n_rs_seq=3)
    with Speculator(ctx, spec_type="draft-mtp", spec_draft_adaptive=False) as made:
        run(made, {0: tokens(43)}, 4)
    assert watched.drafts[0] == ByHand(one)(watched.texts[0], 3)


def test_going_back_to_an_earlier_place(watched: type[Watched]) -> None:
    """Its guesses may be poorer then, as the state before that place is gone."""
    ctx = Context(model("qwen35-mtp"), **EXACT, n_rs_seq=3)
    with Speculator(ctx, spec_type="draft-mtp") as made:
        run(made, {0: tokens(20)}, 3)
        state = ctx.save_state(0)
        run(made, {0: tokens(9)}, 6)
        ctx.load_state(state, 0)
        found = run(made, {0: tokens(7, 3)}, 6)[0]
    alone = Context(ctx.model, **EXACT)
    alone.load_state(state, 0)
    logits = alone.decode(tokens(7, 3))[-1]
    for id in found:
        assert id == greedy(logits)
        logits = alone.decode([id])[-1]


@pytest.mark.parametrize("n", [19, 9, 4])
def test_a_prompt_of_one_token(n: int, watched: type[Watched]) -> None:
    """It is drafted at once, after whatever the sequence has."""
    ctx = Context(model("qwen3next-mtp"), **EXACT)
    states = {}
    with Speculator(ctx, spec_type="draft-mtp") as made:
        for i in range(20):
            ctx.decode(tokens(20)[i : i + 1])
            states[i + 1] = ctx.save_state(0)
        ctx.clear()
        text = run(made, {0: tokens(20)[:9]}, 6)[0]
        assert len(text) >= 6
        ctx.load_state(states[n], 0)
        found = run(made, {0: [7]}, 5)[0]
    alone = Context(ctx.model, **EXACT)
    alone.load_state(states[n], 0)
    for before, id in pairwise((7, *found)):
        assert id == greedy(alone.decode([before])[-1])
    assert [7] in [text[-1:] for text in watched.texts]


def without_trunk(metadata: dict[str, Any], arrays: Arrays) -> None:
    arch = metadata["general.architecture"]
    n_layer = metadata[f"{arch}.block_count"] - metadata[f"{arch}.nextn_predict_layers"]
    trunk = ("output_hc", *(f"blk.{il}." for il in range(n_layer)))
    for name in [name for name in arrays if name.startswith(trunk)]:
        del arrays[name]


@pytest.mark.parametrize("name", ["qwen35moe-mtp", "glm5-next-mtp", "qwen4exp-mtp", "mellum-mtp"])
def test_nextn_layers_of_another_file(name: str, watched: type[Watched]) -> None:
    whole, trunk = model(name), model(name, load_mtp=False)
    alone = model(name, without_trunk)
    ctx = Context(trunk, **EXACT, n_rs_seq=3)
    with Speculator(ctx, spec_type="draft-mtp", model_draft=alone) as made:
        run(made, {0: tokens(5)}, 6)
    assert watched.drafts[0] == ByHand(whole)(watched.texts[0], 3)


def test_what_cannot_draft() -> None:
    for target, options, message in (
        (model("qwen35-mtp", load_mtp=False), {}, "they are not loaded, use load_mtp=True"),
        (model("llama-dense"), {}, "the model has none; or pass a model_draft"),
        (
            model("qwen35-mtp"),
            {"model_draft": model("llama-dense")},
            r"\(llama\): the model has none",
        ),
        (model("llama-dense"), {"model_draft": model("qwen35-mtp")}, "'llama' do not expose their"),
    ):
        ctx = Context(target, **EXACT)
        with pytest.raises((ContextError, ModelError), match=message):
            Speculator(ctx, spec_type="draft-mtp", **options)


def test_unlikely_and_short_drafts_are_left_out() -> None:
    one = model("qwen35moe-mtp")
    ctx = Context(one, **EXACT, n_rs_seq=3)
    counts = {}
    for p_min, n_min in ((0.0, 0), (0.3, 0), (0.3, 3), (1.0, 0)):
        ctx.clear()
        how = {"spec_draft_p_min": p_min, "spec_draft_n_min": n_min}
        with Speculator(ctx, spec_type="draft-mtp", spec_draft_adaptive=False, **how) as made:
            run(made, {0: tokens(5)}, 12)
        counts[p_min, n_min] = made.statistics["draft-mtp"].drafted_at
    every, likely, long, none = counts.values()
    assert len(every) == 3 and sum(likely) < sum(every) and none == []
    assert not long or long[0] == long[2]
