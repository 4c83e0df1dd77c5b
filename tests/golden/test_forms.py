"""Every way to compute the gated delta net gives the golden models llama.cpp's logits, and without
rounded caches all ways the same."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import llama_py
from llama_py.params import DELTA_NET_FORMS
from tests.graph_models import GOLDEN
from tests.live_models import nmse

FORMS = ["auto", *DELTA_NET_FORMS]
PLAIN = ["llama-dense", "llama-moe"]  # no delta nets: every form is the same graph
DELTA = [
    "qwen35-dense-gqa", "qwen35moe-moe", "qwen35moe-moe-gqa", "qwen35moe-mtp", "qwen3next-moe-gqa",
    "kimi-linear-moe",
]  # fmt: skip
CASES = [*((name, "auto") for name in PLAIN), *((name, form) for name in DELTA for form in FORMS)]
EXACT: dict[str, Any] = {"type_k": "f32", "type_v": "f32", "flash_attn": "off"}

pytestmark = pytest.mark.skipif(
    not GOLDEN.exists(), reason="the golden data of the real llama.cpp is not beside this checkout"
)


@cache
def gold(name: str) -> Any:
    return np.load(GOLDEN / "logits" / f"{name}.npz")


def rows(name: str, form: str, **options: Any) -> NDArray[np.float64]:
    """Logits of the golden prompt in one batch, then of the golden tokens one by one."""
    model = llama_py.load(str(GOLDEN / "models" / f"{name}.gguf"))
    ctx = model.context(256, n_batch=64, n_ubatch=64, delta_net=form, **options)
    found = [ctx.decode(gold(name)["tokens"], logits="all")]
    found += [ctx.decode([int(token)]) for token in gold(name)["greedy"]]
    return np.concatenate(found).astype(np.float64)


@cache
def fused(name: str) -> NDArray[np.float64]:
    return rows(name, "fused", **EXACT)


@pytest.mark.parametrize(("name", "form"), CASES)
def test_logits_are_those_of_llama_cpp(name: str, form: str) -> None:
    found = rows(name, form)
    expected, greedy = gold(name)["logits"].astype(np.float64), gold(name)["greedy"]
    n = len(expected)
    assert nmse(expected, found[:n]) <= 3e-6
    assert [int(row.argmax()) for row in found[n - 1 : -1]] == list(greedy)
    for wanted, row in zip(gold(name)["greedy_logits"], found[n:], strict=True):
        assert nmse(wanted.astype(np.float64), row) <= 3e-6


@pytest.mark.parametrize("form", [form for form in DELTA_NET_FORMS if form != "fused"])
@pytest.mark.parametrize("name", DELTA)
def test_forms_agree_with_one_another(name: str, form: str) -> None:
    assert nmse(fused(name), rows(name, form, **EXACT)) <= 1e-9
