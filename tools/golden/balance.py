"""How much each branch of a graph matters: the sums of rows as wide as the residual stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ggml_py.dump import Record
from llama_py_tools.graph.peer import Peer


def balance(path: Path, tokens: list[int]) -> Iterator[str]:
    """A line for each ADD of two streams: root mean square of both, after a prompt."""
    sizes: dict[str, float] = {}
    lines: list[str] = []

    def watch(record: Record, read: Any) -> None:
        x = read()
        if x is None or not x.size:
            return
        if record["op"] == "ADD" and record["ne"][0] == peer.n_embd and len(record["src"]) == 2:
            parts = [f"{s['name']} {sizes.get(s['name'], 0):.2g}" for s in record["src"]]
            lines.append(f"{record['name']:20} = {' + '.join(parts)}")
        sizes[record["name"]] = float(np.sqrt(np.square(x, dtype=np.float64).mean()))

    with Peer(str(path), n_ctx=256, n_batch=256, n_ubatch=256, n_threads=1, watch=watch) as peer:
        peer.decode(tokens)
    yield from lines
    yield f"{'result_output':20} = {sizes.get('result_output', 0):.2g}"
