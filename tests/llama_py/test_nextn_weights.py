"""A NextN layer may bring embeddings, a norm and a head of its own, or use the trunk's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from llama_py.batch import Batch
from llama_py.context import Context
from tests.live_models import EXACT, PROMPT, Arrays, Change, changed, model_of, nmse, random

OWN = {
    "embed_tokens": "token_embd.weight",
    "shared_head_head": "output.weight",
    "shared_head_norm": "output_norm.weight",
}


def nextn(metadata: dict[str, Any], arrays: Arrays) -> None:
    """The attention layer once more, as a NextN layer."""
    arch = metadata["general.architecture"]
    metadata |= {
        f"{arch}.block_count": 3,
        f"{arch}.nextn_predict_layers": 1,
        f"{arch}.attention.recurrent_layers": [1, 0, 0],
    }
    arrays |= {k.replace("blk.1.", "blk.2."): a for k, a in arrays.items() if "blk.1." in k}
    arrays["blk.2.nextn.eh_proj.weight"] = random(256, 512)
    for norm in ("enorm", "hnorm"):
        arrays[f"blk.2.nextn.{norm}.weight"] = np.ones(256, np.float32)


def own(part: str, factor: float = 1.0) -> Change:
    """The trunk's weights as the layer's own, the first half of them times a factor."""

    def change(metadata: dict[str, Any], arrays: Arrays) -> None:
        copy = arrays[OWN[part]].copy()
        copy[..., : copy.shape[-1] // 2] *= factor
        arrays[f"blk.2.nextn.{part}.weight"] = copy

    return change


def draft(name: str, *changes: Change) -> NDArray[np.float32]:
    model = model_of(*changed(name, nextn, *changes), load_mtp=True)
    hidden = np.random.default_rng(2).standard_normal((len(PROMPT), 256)).astype(np.float32)
    batch = Batch(PROMPT, embd=hidden, outputs=[True] * len(PROMPT))
    return Context(model, **EXACT, mtp=True).decode(batch)


@pytest.mark.parametrize("part", OWN)
@pytest.mark.parametrize("name", ["qwen35-dense", "qwen35moe-moe", "qwen3next-moe"])
def test_what_the_layer_brings_is_used(name: str, part: str) -> None:
    expected = draft(name)
    assert nmse(expected, draft(name, own(part))) < 1e-12
    assert nmse(expected, draft(name, own(part, 0.5))) > 1e-4
