"""Record of a run's values, node by node, for comparison."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ggml_py.errors import GGMLError
from ggml_py.inspection.dump import Record
from llama_py_tools.graph.diff.numbers import Values
from llama_py_tools.graph.diff.steps import Mask
from llama_py_tools.graph.dumps import read_records

Key = tuple[int, int]  # graph, node
Logits = NDArray[np.float32]
Read = Callable[[], Values]
NODES = "nodes.jsonl"  # node list in a folder of values


class ArrayFile:
    """Arrays in a temporary file, since the arrays of a run may exceed memory."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as this)
        self._end = 0

    def put(self, values: Values) -> Read:
        """Store an array; return a function that reads it."""
        data = np.ascontiguousarray(values, np.float32)
        start, size, shape = self._end, data.nbytes, data.shape
        self._file.seek(start)
        self._file.write(data.data if size else b"")
        self._end += size

        def read() -> Values:
            self._file.seek(start)
            return np.frombuffer(self._file.read(size), np.float32).reshape(shape)

        return read


@dataclass
class RecordedRun:
    """The values of a prompt's graphs, and of tokens after it.

    what     label of the run
    records  all nodes of all graphs
    values   values of computed nodes, without views
    inputs   values of leafs that are set for each graph, by graph and name
    calls    of each graph, the number of the decode that ran it
    steps    by node of a fused step: indices of all nodes of the step
    parts    by value that a step wrote partially: mask of the written elements
    chosen   the tokens after the prompt
    logits   of each decode, [n_tokens, n_vocab]
    """

    what: str
    records: list[Record] = field(default_factory=list)
    values: dict[Key, Read] = field(default_factory=dict)
    inputs: dict[tuple[int, str], Read] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)
    steps: dict[Key, tuple[int, ...]] = field(default_factory=dict)
    parts: dict[Key, Mask] = field(default_factory=dict)
    chosen: list[int] = field(default_factory=list)
    logits: list[Logits] = field(default_factory=list)

    def by_key(self) -> dict[Key, Record]:
        return {(r["dec"], r["i"]): r for r in self.records}


def feed(
    run: RecordedRun,
    decode: Callable[[Sequence[int]], Logits],
    prompt: Sequence[int],
    n_decode: int,
    chosen: Sequence[int] = (),
) -> None:
    """Decode the prompt, then `n_decode` tokens: `chosen`, or the most likely tokens."""
    ids = list(prompt)
    for k in range(1 + n_decode):
        run.logits.append(decode(ids))
        if k < n_decode:
            last = run.logits[-1]
            token = chosen[k] if chosen else int(last[-1].argmax()) if last.size else 0
            run.chosen.append(token)
            ids = [token]


def from_folder(path: str) -> RecordedRun:
    """Return the run that llama-py-debug --save-tensors has written."""
    folder, run = Path(path), RecordedRun(path)
    if not (folder / NODES).exists():
        raise GGMLError(f"{path}: {NODES} is missing; create it with llama-py-debug --save-tensors")
    run.records = read_records(str(folder / NODES))
    run.calls = list(range(1 + max(r["dec"] for r in run.records)))
    known = run.by_key()
    for file in sorted(folder.glob("*.npy")):
        numbers = file.name.split("-", 2)[:2]
        key = int(numbers[0]), int(numbers[1])
        if key not in known:
            raise GGMLError(f"{file}: {NODES} does not list this node; save the tensors again")
        run.values[key] = _loader(file)
    return run


def _loader(file: Path) -> Read:
    def read() -> Values:
        found: Values = np.load(file).astype(np.float32, copy=False)
        return found

    return read
