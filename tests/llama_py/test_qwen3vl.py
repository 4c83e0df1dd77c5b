"""Embeddings that are wider than the model, and a head of some of the tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ggml_py.errors import ContextError, HParamsError
from llama_py.batch import Batch
from llama_py.context import Context
from tests.support.live_models import EXACT, PROMPT, Arrays, live, made, model_of, nmse, random


def embeddings(n_parts: int) -> Any:
    """Of PROMPT's tokens, then zeros. [n_tokens, n_parts * n_embd]"""
    rows = made("qwen3vl-dense")[1]["token_embd.weight"].reshape(64, 64)[PROMPT]
    return np.pad(rows, [(0, 0), (0, 64 * (n_parts - 1))])


def run(embd: Any) -> Any:
    return Context(live("qwen3vl-dense"), **EXACT).decode(Batch(embd=embd), "all")


def test_the_second_part_is_added_to_the_first_layers_result() -> None:
    plain = Context(live("qwen3vl-dense"), **EXACT).decode(PROMPT, "all")
    assert nmse(plain, run(embeddings(2))) < 1e-12
    wide = embeddings(2)
    wide[4, 64:] = random(1, 64)[0]
    rows = run(wide)
    assert nmse(plain[:4], rows[:4]) < 1e-12
    assert np.square(plain[4:] - rows[4:]).sum(1).min() > 1e-6
    with pytest.raises(ContextError, match=r"embd must have shape \[13, 128\]"):
        run(embeddings(1))


def test_all_layers_may_have_a_part() -> None:
    model = model_of(*made("qwen3vl-dense", n_deepstack_layers=2))
    expected = Context(live("qwen3vl-dense"), **EXACT).decode(PROMPT)
    assert nmse(expected, Context(model, **EXACT).decode(PROMPT)) < 1e-12
    with pytest.raises(HParamsError, match="at most 2"):
        made("qwen3vl-dense", n_deepstack_layers=3)


def with_head(metadata: dict[str, Any], arrays: Arrays, n_vocab: int) -> Any:
    arrays["token_embd.weight"] = random(n_vocab, 64)
    arrays["output.weight"] = random(3072, 64)
    metadata["tokenizer.ggml.tokens"] = [f"t{i}" for i in range(n_vocab)]
    metadata["qwen3tts.vocab_size"] = n_vocab
    return metadata, arrays


def test_a_head_of_the_last_tokens() -> None:
    (row,) = Context(model_of(*with_head(*made("qwen3tts-dense"), 3080)), **EXACT).decode([5, 7])
    assert np.isneginf(row[:8]).all() and np.isfinite(row[8:]).all()
    assert row[8:].std() > 0.1
    with pytest.raises(HParamsError, match="at least 3072 tokens"):
        model_of(*with_head(*made("qwen3tts-dense"), 3000))
