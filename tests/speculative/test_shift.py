"""A full context goes on while tokens are drafted: with the same text as without drafts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError
from llama_py.context import Context
from llama_py.decoding.drafting.drafters.draft_mtp import DraftMtp
from llama_py.decoding.known_text import KnownText
from llama_py.decoding.sequences import Sequences
from llama_py.model import Model
from tests.support.live_models import EXACT, changed, model_of, tokens

N_CTX = 256
SHORT = {"spec_ngram_simple_size_n": 2, "spec_ngram_simple_size_m": 5}
PROMPT = tokens(20)


def model(name: str, **options: Any) -> Model:
    return model_of(*changed(name), "cpu", **options)


def goes_round(ids: Any, logits: Any) -> Any:
    """A text that repeats itself, so that drafts are right, but not for long."""
    logits = logits.copy()
    logits[:3] = -np.inf
    logits[5 + (len(ids) % 7 + len(ids) // 40) % 60] += 4
    return logits


def said(ctx: Context, n_keep: int, n: int, **options: Any) -> tuple[list[int | None], int]:
    how: Any = {"context_shift": True, "n_keep": n_keep, "logits_processors": [goes_round]}
    pieces = list(llama_py.stream(ctx, PROMPT, max_tokens=n, **how, **options))
    return [p.token for p in pieces], pieces[-1].n_discarded


CASES = [
    ("deepseek32-moe", "draft-mtp", 9, 270),
    ("deepseek32-moe", "draft-simple", 0, 270),
    ("llama-dense", "ngram-simple", 0, 400),
    ("llama-dense", "ngram-map-k4v,ngram-mod", 9, 400),
    ("llama-dense", "ngram-cache", 9, 400),
]


@pytest.mark.parametrize(("name", "kind", "n_keep", "n"), CASES)
def test_the_text_is_the_same(name: str, kind: str, n_keep: int, n: int) -> None:
    """Once or twice full, with and without drafts."""
    one = model(name, load_mtp=kind == "draft-mtp")
    how = {**EXACT, "n_ctx": N_CTX}
    expected, n_discarded = said(Context(one, **how), n_keep, n)
    ctx = Context(one, **how)
    more = {**SHORT, "spec_type": kind, "model_draft": one if kind == "draft-simple" else None}
    found, n_gone = said(ctx, n_keep, n, **more)
    assert found == expected and n_gone == n_discarded > 0
    assert sum(s.n_drafted for s in Sequences.for_context(ctx).statistics.values()) > 3
    assert ctx.memory.seq_pos_max(0) + 1 == len(PROMPT) + n - 1 - n_gone
    if kind == "draft-mtp":
        (drafter,) = Sequences.for_context(ctx).drafts._drafters.values()
        assert isinstance(drafter, DraftMtp)
        head = drafter.heads[0].memory
        assert head.seq_pos_min(0) == 0  # it moved with the model, and begins where that does
        assert ctx.memory.seq_pos_max(0) - 8 < head.seq_pos_max(0) <= ctx.memory.seq_pos_max(0) + 1
    Sequences.for_context(ctx).close()


@pytest.mark.parametrize(
    ("kind", "name"), [("draft-eagle3", "eagle3-own"), ("draft-dflash", "dflash-pairs")]
)
@pytest.mark.parametrize("n_keep", [0, 9])
def test_drafts_of_a_model_for_this_one(kind: str, name: str, n_keep: int) -> None:
    """What it has read moves with the model's."""

    def layers(metadata: dict[str, Any], _: Any) -> None:
        for key in {"eagle3.target_layers"} & metadata.keys():
            metadata[key] = [0, 1, 0]

    one, draft = model("llama-dense"), model_of(*changed(name, layers), "cpu")
    how = {**EXACT, "n_ctx": N_CTX}
    expected, _ = said(Context(one, **how), n_keep, 270)
    ctx = Context(one, **how)
    found, n_gone = said(ctx, n_keep, 270, spec_type=kind, model_draft=draft)
    assert found == expected and n_gone > 0
    own = Sequences.for_context(ctx).contexts[1].memory
    assert own.seq_pos_min(0) == 0
    assert ctx.memory.seq_pos_max(0) - 8 < own.seq_pos_max(0) <= ctx.memory.seq_pos_max(0) + 1
    Sequences.for_context(ctx).close()


def test_a_prompt_that_is_kept_whole() -> None:
    ctx = Context(model("llama-dense"), **{**EXACT, "n_ctx": N_CTX})
    prompt = (PROMPT * 13)[:N_CTX]
    with pytest.raises(ContextError, match="cannot discard tokens"):
        list(
            llama_py.stream(
                ctx, prompt, max_tokens=3, context_shift=True, n_keep=-1, spec_type="ngram-simple"
            )
        )


@pytest.mark.parametrize(
    ("first", "pos", "n", "left"),
    [
        (0, 3, 4, [*range(3), *range(7, 20)]),
        (5, 7, 4, [5, 6, *range(11, 20)]),
        (5, 2, 6, [*range(8, 20)]),
        (9, 2, 4, [*range(9, 20)]),
    ],
)
def test_a_text_without_its_middle(first: int, pos: int, n: int, left: list[int]) -> None:
    """Every token stands where its position is."""
    text = KnownText(first)
    text.add(range(first, 20))
    text.remove(pos, n)
    assert text.ids.tolist() == left and text.end == 20 - n
    assert [text.first + i for i in range(text.n)] == [id if id < pos else id - n for id in left]
