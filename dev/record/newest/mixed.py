"""Runs of batches that mix tokens and embeddings, on either engine, and their recordings."""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dev.record.golden.case import Case, Result, joined
from dev.record.golden.case import batch as text
from dev.record.newest.engine import renumber
from ggml_py.inspection.dump import Record
from llama_py.batch import NO_TOKEN, Batch

DATA = Path(__file__).parents[3] / "tests" / "data" / "mixed"
NODES, VALUES = ".nodes.xz", ".npz"  # ends of recorded files
IMAGE = (2, 2)  # rows and columns of the embeddings in the first sequence


def rows(n: int, n_embd: int, seed: int = 0) -> NDArray[np.float32]:
    """Return random embeddings [n, n_embd]."""
    return np.random.default_rng(seed).normal(size=(n, n_embd)).astype(np.float32)


def batches(case: Case, n_embd: int) -> list[Batch]:
    """Return two mixed batches of two sequences, then a token of each; without a memory one batch.
    Sequences have equally many entries, so that each batch is one ubatch."""
    image, other = [5, *[NO_TOKEN] * 4, 7, 9], [NO_TOKEN, 3, 8, NO_TOKEN, NO_TOKEN, 2, 6]
    if case.facts.memory:
        end = 5 if case.facts.axes else 7
        found = [
            joined([_entries(image, 0, 0), _entries(other, 0, 1)]),
            joined([_entries([NO_TOKEN, 4], end, 0), _entries([6, NO_TOKEN], 7, 1)]),
            joined([_entries([2], end + 2, 0), _entries([1], 9, 1)]),
        ]
    else:
        found = [_entries(image, 0, 0)]
    for i, one in enumerate(found):
        assert one.tokens is not None
        n = [*one.tokens].count(NO_TOKEN)
        one.embd = rows(n, n_embd, i) if n else None
    if case.facts.axes:
        found[0].pos = _positions_of_image(found[0].pos, case.facts.axes)
    return found


def _entries(tokens: list[int], first: int, seq: int) -> Batch:
    n = len(tokens)
    return Batch(tokens, None, [*range(first, first + n)], [(seq,)] * n, [True] * n)


def _positions_of_image(pos: Any, n_axes: int) -> NDArray[np.int32]:
    """Return positions [n_axes, n], with an image in the first sequence."""
    high, wide = IMAGE
    n = high * wide
    axes = np.tile(np.array(pos, np.int32), (n_axes, 1))
    axes[3:] = 0
    axes[0, 1 : 1 + n] = 1
    axes[1, 1 : 1 + n] = 1 + np.arange(n) // wide
    axes[2, 1 : 1 + n] = 1 + np.arange(n) % wide
    axes[:3, 1 + n : 3 + n] = [3, 4]
    return axes


def run(case: Case, n_embd: int, **how: Any) -> Result:
    """Return the results of all entries, or nodes=True: the nodes that are computed."""
    wanted, encodes = batches(case, n_embd), case.facts.start is not None
    more: dict[str, Any] = {"unified": encodes}
    more |= {} if case.facts.logits else {"pooling": "none"}
    with case.open(n_seqs=2 if case.facts.memory else 1, **more, **how) as engine:
        if encodes:
            engine.run(joined(text(case.tokens(5 - s, s), seq=s) for s in (0, 1)), encode=True)
        found = []
        for batch in wanted:
            engine.run(batch)
            assert batch.outputs is not None
            n = len(batch.outputs)
            if "nodes" not in how:
                found.append(engine.logits(n) if case.facts.logits else engine.embeddings(n))
        if "nodes" in how:
            return Result(list_computed(engine.nodes))
        return Result(values={"rows": np.concatenate(found)})


def recorded(end: str) -> list[str]:
    """Return the names of models that have a file with this end."""
    return sorted(path.name.removesuffix(end) for path in DATA.glob(f"*{end}"))


def save(name: str, n_embd: int, graphs: Result, found: Result) -> None:
    """Write the results of a model that has recorded files."""
    if name in recorded(NODES):
        text = json.dumps(graphs.nodes, separators=(",", ":")).encode()
        packed = lzma.compress(text, preset=9 | lzma.PRESET_EXTREME)
        (DATA / f"{name}{NODES}").write_bytes(packed)
    if name in recorded(VALUES):
        arrays: dict[str, Any] = {"n_embd": np.array(n_embd), **found.values}
        np.savez_compressed(DATA / f"{name}{VALUES}", **arrays)


def recorded_nodes(name: str) -> list[Record]:
    """Return a recorded model's nodes."""
    packed = (DATA / f"{name}{NODES}").read_bytes()
    nodes: list[Record] = json.loads(lzma.decompress(packed))
    return nodes


def recorded_values(name: str) -> tuple[int, NDArray[np.float32]]:
    """Return the dimensions of a recorded model's embeddings, and its results."""
    found = np.load(DATA / f"{name}{VALUES}")
    return int(found["n_embd"]), found["rows"]


def list_computed(nodes: Sequence[Record]) -> list[Record]:
    """Return the nodes of mixed graphs that are computed, with new numbers in names."""
    graphs = [[*graph] for _, graph in groupby(nodes, lambda node: node["dec"])]
    mixed = [graph for graph in graphs if any(map(_reads_slots, graph))]
    found = (_name_embd(renumber([n for n in graph if n["flags"]], 0)) for graph in mixed)
    return [{**node, "dec": i} for i, graph in enumerate(found) for node in graph]


def _reads_slots(node: Record) -> bool:
    return node["flags"] != 0 and "inp_mixed_slots" in [s["name"] for s in node["src"]]


def _name_embd(nodes: list[Record]) -> list[Record]:
    """Name the embeddings before they are scaled `embd`, like in graphs of llama.cpp 0.5.0."""
    set_rows = next(i for i, node in enumerate(nodes) if _reads_slots(node))
    scaled = nodes[set_rows + 1]
    if [s["name"] for s in scaled["src"]][1:] != ["inp_scale_rows"]:
        return nodes
    nodes[set_rows] = {**nodes[set_rows], "name": "embd"}
    first, second = scaled["src"]
    nodes[set_rows + 1] = {**scaled, "src": [{**first, "name": "embd"}, second]}
    return nodes
