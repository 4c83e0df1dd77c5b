"""Values from experts, norms over groups, and norms of heads with one weight per head."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.llama_py.test_hparams import read, refusal
from tests.support.live_models import Arrays, changed, live, logits, model_of, nmse

NAME = "k2-horizon-mova"


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("attention.value_expert_used_count", 6, "from 1 to value_expert_count = 5"),
        ("attention.value_expert_used_count", 0, "from 1 to value_expert_count = 5"),
        ("attention.value_expert_count", 0, "from 0 to value_expert_count = 0"),
        ("attention.group_norm_groups", 3, "must divide embedding_length = 64"),
        ("expert_gating_func", 4, "must be 1 or 2"),
        ("expert_feed_forward_length", None, "is missing"),
        ("attention.value_length", 16, "must be key_length = 32"),
    ],
)
def test_refused(key: str, value: Any, why: str) -> None:
    assert why in refusal(NAME, **{key.replace(".", "__"): value})


def test_layers_with_experts_have_value_experts() -> None:
    hp: Any = read(NAME)
    assert [hp.routes_values(il) for il in range(2)] == [False, True]
    dense: Any = read(NAME, expert_count=0, expert_used_count=0, leading_dense_block_count=0)
    assert not any(dense.routes_values(il) for il in range(2))


def flat_norms(metadata: dict[str, Any], arrays: Arrays) -> None:
    for key in arrays:
        if key.endswith(("attn_q_norm.weight", "attn_k_norm.weight")):
            arrays[key] = arrays[key].reshape(-1)


def test_weights_of_head_norms_may_be_flat() -> None:
    np.testing.assert_array_equal(logits(model_of(*changed(NAME, flat_norms))), logits(live(NAME)))


def no_groups(metadata: dict[str, Any], arrays: Arrays) -> None:
    metadata["k2-horizon.attention.group_norm_groups"] = 1


def zero_groups(metadata: dict[str, Any], arrays: Arrays) -> None:
    metadata["k2-horizon.attention.group_norm_groups"] = 0


def test_zero_groups_are_one() -> None:
    one = logits(model_of(*changed(NAME, no_groups)))
    np.testing.assert_array_equal(logits(model_of(*changed(NAME, zero_groups))), one)
    assert nmse(one, logits(live(NAME))) > 1e-3
