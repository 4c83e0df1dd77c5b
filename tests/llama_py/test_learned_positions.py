"""Positions that are rows of a table end with it."""

from __future__ import annotations

from pathlib import Path

import pytest

import llama_py
from dev import tiny_models as tiny
from ggml_py.errors import ContextError
from llama_py.batch import Batch


def test_no_position_behind_the_table(tmp_path: Path) -> None:
    ctx = llama_py.load(tiny.write("gpt2", "dense", tmp_path), "cpu").context(512)
    ctx.decode(Batch([1, 2], pos=[254, 255]))
    with pytest.raises(ContextError, match=r"position must be less than 256, .*, got 256"):
        ctx.decode([3])
    assert ctx.memory.seq_pos_max(0) == 255
