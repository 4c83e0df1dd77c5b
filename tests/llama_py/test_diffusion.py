"""Writing by diffusion: what is unmasked, when, and by which algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError
from llama_py.params.diffusion import DiffusionParams
from llama_py.params.sampling import SamplingParams
from llama_py.text.diffusion import Step, diffuse
from tests.support.golden_models import path_of

MASK, PROMPT = 63, [1, 2, 3]
GREEDY = SamplingParams(temp=0.0, seed=1)


@pytest.fixture(scope="module")
def model() -> Iterator[llama_py.Model]:
    with llama_py.load(str(path_of("llada-dense"))) as found:
        found.tokenizer.special_ids["mask"] = MASK
        yield found


def steps(model: Any, length: int = 19, sampling: Any = GREEDY, **how: Any) -> list[Step]:
    return list(diffuse(model, PROMPT, length, DiffusionParams(**how), sampling))


def masked(found: list[Step]) -> list[int]:
    return [int((step.tokens == MASK).sum()) for step in found]


def test_all_is_unmasked_at_the_end_and_the_prompt_stays(model: llama_py.Model) -> None:
    found = steps(model, steps=8)
    assert [step.done for step in found] == list(range(9)) and found[0].total == 8
    assert masked(found)[0] == 16 and sorted(masked(found), reverse=True) == masked(found)
    for step in found:
        assert step.tokens[:3].tolist() == PROMPT
    # what was unmasked stays
    for a, b in pairwise(found):
        assert (b.tokens[a.tokens != MASK] == a.tokens[a.tokens != MASK]).all()


def test_the_first_to_be_unmasked_is_the_surest(model: llama_py.Model) -> None:
    plain = SamplingParams(temp=0.0, top_k=0, top_p=1.0)
    first, second = steps(model, length=10, steps=6, eps=1e-3, sampling=plain)[:2]
    logits = model.context(16).decode(first.tokens, "all")[2:-1].astype(np.float64)
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    (changed,) = np.flatnonzero(first.tokens != second.tokens)
    assert changed == 3 + int(p.max(1).argmax())
    assert second.tokens[changed] == p[changed - 3].argmax()


def test_blocks_come_one_after_another(model: llama_py.Model) -> None:
    found = steps(model, length=16, steps=8, block_length=4)
    for step in found:
        left = step.tokens[3:] == MASK
        begun = [bool(left[i : i + 4].any()) for i in range(0, 13, 4)]
        assert begun == sorted(begun)


@pytest.mark.parametrize("algorithm", range(5))
@pytest.mark.parametrize("more", [{}, {"alg_temp": 0.5}, {"cfg_scale": 1.0}])
def test_algorithms(model: llama_py.Model, algorithm: int, more: dict[str, float]) -> None:
    sampling = SamplingParams(temp=0.7, top_k=20, top_p=0.9, seed=5)
    how: dict[str, Any] = {"steps": 4, "algorithm": algorithm, "add_gumbel_noise": True, **more}
    a, b = (steps(model, sampling=sampling, **how) for _ in range(2))
    assert a[-1].tokens.tolist() == b[-1].tokens.tolist()
    assert masked(a)[-1] == int((a[-1].tokens[3:] == MASK).sum()) < 16


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"eps": 0.1, "block_length": 4}, "either"),
        ({"block_length": 5}, "must divide"),
        ({"length": 3}, "does not fit"),
    ],
)
def test_what_does_not_fit(model: llama_py.Model, how: dict[str, Any], error: str) -> None:
    with pytest.raises(ContextError, match=error):
        steps(model, **how)


def test_other_models_do_not_diffuse() -> None:
    refused = pytest.raises(ContextError, match="is not a diffusion model")
    with llama_py.load(str(path_of("llama-dense"))) as other, refused:
        steps(other)
