"""A model with weights of a rarer type computes what their values in f32 would."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_cpu.blocks.format import LAYOUT
from ggml_py.types import BY_NAME, GGMLType
from ggml_ref.quants import dequantizer, quantizer
from llama_py.context import Context
from llama_py.model import Model
from tests.support.live_models import EXACT, PROMPT, Arrays, made, model_of, nmse

CLOSE = 1e-3  # activations are rounded to eight bits; the weights' own rounding gives 0.05

# Rows of whole blocks of every type; all experts are used, so that rounding chooses no other.
WIDE = {
    "expert_count": 3,
    "embedding_length": 256,
    "expert_feed_forward_length": 256,
    "attention__key_length": 64,
    "attention__value_length": 64,
}


def matrices(arrays: Arrays, type: GGMLType) -> list[str]:
    """Names of the tensors that a file may have in a type."""
    return [
        name
        for name, x in arrays.items()
        if name.endswith(".weight") and x.shape[-2] > 1 and x.shape[-1] % type.block_size == 0
    ]


def rounded(x: NDArray[np.float32], type: GGMLType) -> NDArray[np.float32]:
    """The values that blocks of this type have for x."""
    quantize, dequantize = quantizer(type), dequantizer(type)
    assert quantize and dequantize
    blocks = np.frombuffer(quantize(x.reshape(-1)), np.uint8)
    return dequantize(blocks.reshape(-1, type.type_size)).reshape(x.shape)


def decoded(model: Model) -> NDArray[np.float32]:
    """Logits of the prompt at once, then of three tokens, one at a time."""
    ctx = Context(model, **EXACT)
    parts = [ctx.decode(PROMPT, logits="all"), *(ctx.decode([token]) for token in PROMPT[:3])]
    return np.concatenate([part.reshape(-1, part.shape[-1]) for part in parts])


def expected_of(
    metadata: dict[str, object], arrays: Arrays, names: list[str], type: GGMLType
) -> NDArray[np.float32]:
    """What the model decodes whose weights `names` are f32 with the type's values."""
    values = {name: rounded(arrays[name], type) for name in names}
    return decoded(model_of(metadata, {**arrays, **values}, "cpu"))


@pytest.mark.parametrize("kind", ["iq4_nl", "iq4_xs", "mxfp4"])
def test_weights_of_four_bit_levels(kind: str) -> None:
    """In experts, attention and the head; and as embeddings."""
    type = BY_NAME[kind]
    metadata, arrays = made("gpt-oss-moe", **WIDE)
    names = matrices(arrays, type)
    model = model_of(metadata, arrays, "cpu", dict.fromkeys(names, type))
    panels = {t.name for t in model._weights.all_tensors if t.layout == LAYOUT}
    assert {"blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight"} <= panels
    assert nmse(expected_of(metadata, arrays, names, type), decoded(model)) < CLOSE


@pytest.mark.parametrize(
    "kind",
    ["iq1_m", "iq2_xxs", "iq3_s", "tq1_0", "nvfp4", "q1_0", "pq2_0", "ptq1_0", "iq4_k", "iq2_kt"],
)
def test_weights_that_unpack(kind: str) -> None:
    """In place, in every matrix that rows of this type fit."""
    type = BY_NAME[kind]
    metadata, arrays = made("gpt-oss-moe", **WIDE)
    names = matrices(arrays, type)
    assert names
    model = model_of(metadata, arrays, "cpu", dict.fromkeys(names, type))
    assert nmse(expected_of(metadata, arrays, names, type), decoded(model)) < CLOSE
