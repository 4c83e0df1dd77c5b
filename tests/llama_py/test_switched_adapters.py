"""Adapters of a model's own, which tokens choose: what is refused, and what files may look like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ggml_py.errors import ContextError, HParamsError
from llama_py.batch import Batch
from llama_py.context import Context
from llama_py.models import architecture
from tests.support.live_models import EXACT, live, logits, made, model_of, nmse

NAME, PREFIX = "graniteswitch-dense", "graniteswitch."
FIRST, THIRD = 27, 19  # tokens that choose these adapters
TEXT = [1, 2, 4, 6, 8]


def last(ids: list[int], **keys: Any) -> Any:
    """The last row of logits."""
    return Context(model_of(*made(NAME, **keys)), **EXACT).decode(ids)[-1]


def switched(ids: list[int], adapter: int) -> Any:
    """Where an adapter works at all tokens."""
    metadata, arrays = made(NAME)
    for name, x in arrays.items():
        if ".lora_" in name:  # [1, adapters, n_out, n_in]
            x[:] = x[:, adapter : adapter + 1]
    return Context(model_of(metadata, arrays), **EXACT).decode(ids)[-1]


def test_no_adapter_works_before_a_token_chooses_one() -> None:
    assert nmse(switched(TEXT, 0), last(TEXT)) < 1e-12
    assert nmse(switched(TEXT, 1), last(TEXT)) > 1e-3


@pytest.mark.parametrize(("token", "adapter"), [(FIRST, 1), (THIRD, 3)])
def test_a_token_chooses_an_adapter_for_itself_and_all_after_it(token: int, adapter: int) -> None:
    assert nmse(switched([token, *TEXT], adapter), last([token, *TEXT])) < 1e-12


def test_a_token_that_chooses_is_read_as_another() -> None:
    """Where the adapters are all alike only this is left."""
    metadata, arrays = made(NAME)
    for name, x in arrays.items():
        if ".lora_" in name:
            x[:] = x[:, :1]
    ctx = Context(model_of(metadata, arrays), **EXACT)
    rows = [ctx.decode([token, *TEXT])[-1] for token in (FIRST, 3) if not ctx.clear()]
    assert nmse(*rows) < 1e-12


def test_what_was_chosen_stays_when_tokens_leave_and_others_move() -> None:
    """The tokens between the one that chose and those that are kept are taken out."""
    ctx = Context(live(NAME), **EXACT)
    ctx.decode([FIRST, 9, 11, 13, *TEXT])
    ctx.memory.seq_rm(0, 1, 4)
    ctx.memory.seq_add(0, 4, -1, -3)
    found = ctx.memory.seq_pos_max(0)
    with ctx.capture("adapter_ids") as values:
        ctx.decode([5])
    assert found == len(TEXT)
    assert values["adapter_ids"].tolist() == [[1]]


def test_embeddings_cannot_choose() -> None:
    ctx = Context(live(NAME), **EXACT)
    rows = np.ones((2, 64), np.float32)
    with pytest.raises(ContextError, match="selects its adapters by token ids"):
        ctx.decode(Batch(embd=rows, outputs=[True, True]))


def test_files_that_llama_cpp_has_written_count_the_layer_of_the_router() -> None:
    metadata, arrays = made(NAME)
    counted = metadata | {
        f"{PREFIX}block_count": 3,
        f"{PREFIX}nextn_predict_layers": 1,
        f"{PREFIX}attention.head_count": [4, 4, 1],
        f"{PREFIX}feed_forward_length": [96, 96, 0],
        f"{PREFIX}attention.head_count_kv": [2, 2, 1],
    }
    assert (logits(model_of(counted, arrays)) == logits(model_of(metadata, arrays))).all()
    rules = architecture("graniteswitch").quantize_rules
    assert rules.counted_layers(3, 1) == rules.counted_layers(2, 0) == 3


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("count", 4096, "from 0 to 2048"),
        ("count", 2, "must have 2 items instead of 3"),
        ("lora_rank", 0, "from 1 to 4096"),
        ("router_gain", 1e6, "from 0 to 65504"),
        ("token_ids_substitute", [1, 2, 64], "items must each be less than the vocabulary size 64"),
    ],
)
def test_keys_that_make_no_sense(key: str, value: Any, told: str) -> None:
    metadata, arrays = made(NAME)
    with pytest.raises(HParamsError, match=told):
        model_of(metadata | {f"{PREFIX}adapters.{key}": value}, arrays)
