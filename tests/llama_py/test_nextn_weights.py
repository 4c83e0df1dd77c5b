"""A NextN layer may bring embeddings, a norm and a head of its own, or use the trunk's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from llama_py.batch import Batch
from llama_py.context import Context
from tests.support.live_models import EXACT, PROMPT, Arrays, Change, changed, model_of, nmse

OWN = {
    "embed_tokens": "token_embd.weight",
    "shared_head_head": "output.weight",
    "shared_head_norm": "output_norm.weight",
}
NAMES = [
    "qwen35-mtp",
    "qwen35moe-mtp",
    "qwen3next-mtp",
    "step35-mtp",
    "mimo2-mtp",
    "deepseek2-mtp",
    "deepseek4-mtp",
]


def plain(metadata: dict[str, Any], arrays: Arrays) -> None:
    """Without anything of the NextN layer's own."""
    for part in OWN:
        arrays.pop(f"{nextn(metadata)}.{part}.weight", None)
        arrays.pop(f"{nextn(metadata)}.{part}.scale", None)
    arrays.pop(f"{nextn(metadata).removesuffix('nextn')}layer_output_norm.weight", None)


def nextn(metadata: dict[str, Any]) -> str:
    """What names of a model's only NextN layer begin with."""
    return f"blk.{metadata[metadata['general.architecture'] + '.block_count'] - 1}.nextn"


def own(part: str, factor: float = 1.0) -> Change:
    """The trunk's weights as the layer's own, the first half of them times a factor."""

    def change(metadata: dict[str, Any], arrays: Arrays) -> None:
        copy = arrays[OWN[part]].copy()
        copy[..., : copy.shape[-1] // 2] *= factor
        arrays[f"{nextn(metadata)}.{part}.weight"] = copy

    return change


def draft(name: str, *changes: Change) -> NDArray[np.float32]:
    model = model_of(*changed(name, plain, *changes), load_mtp=True)
    shape = len(PROMPT), model.hparams.n_embd_hidden
    hidden = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    batch = Batch(PROMPT, embd=hidden, outputs=[True] * len(PROMPT))
    return Context(model, **EXACT, mtp=True).decode(batch)


@pytest.mark.parametrize("part", OWN)
@pytest.mark.parametrize("name", NAMES)
def test_what_the_layer_brings_is_used(name: str, part: str) -> None:
    expected = draft(name)
    assert nmse(expected, draft(name, own(part))) < 1e-12
    assert nmse(expected, draft(name, own(part, 0.5))) > 1e-4


def test_a_file_may_count_layers_that_it_does_not_have() -> None:
    def without(metadata: dict[str, Any], arrays: Arrays) -> None:
        stem = nextn(metadata).removesuffix("nextn")
        for name in [name for name in arrays if name.startswith(stem)]:
            del arrays[name]

    whole = model_of(*changed("deepseek2-mtp"), load_mtp=True)
    trunk = model_of(*changed("deepseek2-mtp", without), load_mtp=True)
    assert whole.architecture.can_draft and not trunk.architecture.can_draft
    found, expected = (Context(one, **EXACT).decode(PROMPT) for one in (trunk, whole))
    np.testing.assert_array_equal(found, expected)
