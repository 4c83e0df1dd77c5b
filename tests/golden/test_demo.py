"""The demo model writes what it writes in the real llama.cpp."""

from __future__ import annotations

import hashlib
from pathlib import Path

import gguf

import llama_py
from dev.record.golden import demo
from dev.record.golden.store import fingerprint
from tests.support.commands import demo_template, demo_with_template


def test_greedy_texts() -> None:
    recorded = demo.recorded()
    assert fingerprint(demo.DEMO) == recorded["gguf"], "python -m dev.record.record_golden demo"
    model = llama_py.load(str(demo.DEMO))
    for text in recorded["texts"]:
        ids = model.tokenizer.tokenize(text["prompt"])
        assert ids == text["ids"]
        ctx = model.context(512)
        found, row = [], ctx.decode(ids)[-1]
        for _ in text["greedy"]:
            found.append(int(row.argmax()))
            row = ctx.decode(found[-1:])[-1]
        assert found == text["greedy"]


WEIGHTS = "b0ed55ff6d441004949f3f6ef6ee156fd95fa41d32d0da0ae76b43c295fc0899"


def test_only_metadata_changed_since_it_was_trained(tmp_path: Path) -> None:
    """Its chat template came later; behind the header everything is as the recipe wrote it."""
    raw = demo.DEMO.read_bytes()
    weights = raw[gguf.GGUFReader(demo.DEMO).data_offset :]
    assert hashlib.sha256(weights).hexdigest() == WEIGHTS
    made = demo_template()
    without = demo_with_template(tmp_path, None)
    assert made.with_template(demo.DEMO) == made.with_template(without) == raw
    assert llama_py.load_tokenizer(without).chat_template is None
    assert llama_py.load_tokenizer(demo.DEMO).chat_template == made.TEMPLATE
