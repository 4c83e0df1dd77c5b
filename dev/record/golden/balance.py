"""Influence of each branch of a graph: sums of rows with the width of the residual stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ggml_py.inspection.dump import Record
from llama_py_tools.graph.peer import Peer


def balance(path: Path, tokens: list[int]) -> Iterator[str]:
    """Yield a line for each ADD of two streams: root mean square of both, after a prompt."""
    sizes: dict[str, float] = {}
    lines: list[str] = []

    def watch(record: Record, read: Any) -> None:
        x = read()
        if x is None or not x.size:
            return
        added = [s["name"] for s in record["src"] if s["name"] in sizes]
        if record["op"] == "ADD" and record["ne"][0] == peer.n_embd and len(added) == 2:
            parts = [f"{name} {sizes[name]:.2g}" for name in added]
            lines.append(f"{record['name']:20} = {' + '.join(parts)}")
        sizes[record["name"]] = float(np.sqrt(np.square(x, dtype=np.float64).mean()))

    with Peer(str(path), n_ctx=256, n_batch=256, n_ubatch=256, n_threads=1, watch=watch) as peer:
        peer.decode(tokens)
    yield from lines
    yield f"{'result_output':20} = {sizes.get('result_output', 0):.2g}"
    yield from history(path, tokens)


def history(path: Path, tokens: list[int]) -> Iterator[str]:
    """Yield the change of the last row of logits by one earlier token."""
    rows = []
    for back in (0, 1, 4, len(tokens) - 1):
        changed = list(tokens)
        if back:
            changed[-1 - back] = (changed[-1 - back] + 1) % 64
        with Peer(str(path), n_ctx=256, n_batch=256, n_ubatch=256, n_threads=1) as peer:
            rows.append(peer.decode(changed).astype(np.float64))
        error = float(np.square(rows[0] - rows[-1]).sum() / np.square(rows[0]).sum())
        if back:
            yield f"another token {back:2} before the last: NMSE {error:.1g}"
