"""Greedy texts of the real llama.cpp with the demo model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import llama_py
from dev.record.golden.store import DATA, fingerprint
from llama_py_tools.graph.peer import Peer

DEMO = Path(__file__).parents[3] / "llama_py" / "data" / "demo.gguf"
FILE = DATA / "demo.json"
PROMPTS = ["ROMEO:", "First Citizen:\nBefore we proceed any further, hear me speak."]
N = 200  # tokens of each text


def record() -> int:
    """Write the recording and return its size in bytes."""
    tokenizer, texts = llama_py.load(str(DEMO), "null").tokenizer, []
    for prompt in PROMPTS:
        ids = tokenizer.tokenize(prompt)
        texts.append({"prompt": prompt, "ids": ids, "greedy": _greedy(ids)})
    FILE.write_text(json.dumps({"gguf": fingerprint(DEMO), "texts": texts}) + "\n")
    return FILE.stat().st_size


def _greedy(ids: list[int]) -> list[int]:
    found: list[int] = []
    with Peer(str(DEMO), n_ctx=512, n_batch=512, n_ubatch=512, n_threads=1) as peer:
        row = peer.decode(ids)
        while len(found) < N:
            found.append(int(row.argmax()))
            row = peer.decode(found[-1:])
    return found


def recorded() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(FILE.read_text())
    return data
