"""The demo model writes what it writes in the real llama.cpp."""

from __future__ import annotations

import llama_py
from golden import demo
from golden.store import fingerprint


def test_greedy_texts() -> None:
    recorded = demo.recorded()
    assert fingerprint(demo.DEMO) == recorded["gguf"], "python tools/record_golden.py demo"
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
