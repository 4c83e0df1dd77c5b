"""Caches of what drafts: of other types than the model's own, if that is asked for."""

from __future__ import annotations

from typing import Any

import pytest

import llama_py
from ggml_py.errors import ModelError
from llama_py.decoding.speculator import Speculator
from llama_py.params.speculative import SpeculativeParams


def types(how: dict[str, Any], **more: Any) -> tuple[str, str, int | None, int | None]:
    """Of the first NextN layer's context."""
    with llama_py.load(device="ref", load_mtp=True) as model:
        ctx = model.context(256, type_v="bf16", n_threads=1, n_threads_batch=2, **more)
        drafting = Speculator(ctx, spec_type="draft-mtp", **how)
        heads: Any = drafting.drafts._drafters["draft-mtp"]
        p = heads.heads[0].params
        return p.type_k, p.type_v, p.n_threads, p.n_threads_batch


def test_types() -> None:
    assert types({}) == ("f16", "bf16", 1, 2)
    given = {"spec_draft_type_k": "q8_0", "spec_draft_type_v": "f32"}
    assert types(given) == ("q8_0", "f32", 1, 2)
    with pytest.raises(ModelError, match=r"spec_draft_type_k must be one of f32.*got 'i8'"):
        SpeculativeParams(spec_draft_type_k="i8")
