"""Embeddings that come in place of tokens go through matrices of their own, to the same keys."""

from __future__ import annotations

import numpy as np

from llama_py.batch import Batch
from llama_py.context import Context
from llama_py.model import Model
from tests.support.live_models import EXACT, PROMPT, Arrays, logits, made, model_of, nmse


def with_images(model: Model, table: Arrays) -> np.ndarray:
    """The prompt's logits, its middle given as rows of the table."""
    ctx, rows = Context(model, **EXACT), table["token_embd.weight"][0, 0, PROMPT[4:9]]
    parts = [ctx.decode(PROMPT[:4], logits="all")]
    parts.append(ctx.decode(Batch(embd=rows, outputs=[True] * 5)))
    parts.append(ctx.decode(PROMPT[9:], logits="all"))
    return np.concatenate(parts)


def test_they_have_matrices_of_their_own() -> None:
    metadata, arrays = made("cogvlm-text")
    arrays = {k: a for k, a in arrays.items() if not k.endswith(".scale")}  # only text has these
    model = model_of(metadata, arrays)
    alike = {
        k: arrays[k.replace("vis_attn", "attn").replace("vis_", "ffn_")] if "vis_" in k else a
        for k, a in arrays.items()
    }
    expected = logits(model)
    assert nmse(expected, with_images(model_of(metadata, alike), arrays)) < 1e-9
    found = with_images(model, arrays)
    assert nmse(expected[:4], found[:4]) < 1e-9
    assert nmse(expected[4:], found[4:]) > 1e-3


def test_rows_that_are_asked_for() -> None:
    model = model_of(*made("cogvlm-text"))
    found = Context(model, **EXACT).decode(Batch(PROMPT, outputs=[i in (3, 7) for i in range(13)]))
    assert nmse(logits(model)[[3, 7]], found) < 1e-9
