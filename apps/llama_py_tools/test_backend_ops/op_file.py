"""llama.cpp's file of op cases, one node per line (test-export-graph-ops.cpp,
test-backend-ops.cpp:make_test_cases_from_file):

    op type ne[4] n_params param.. n_src (type ne[4] nb[4]).. name|-
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path

import numpy as np

from ggml_py.errors import GGMLError
from ggml_py.graph import Graph
from ggml_py.opspec import OP_PARAMS_SIZE, OPS, OpSpec
from ggml_py.tensor import MAX_SRC, Shape, Tensor, contiguous_strides
from ggml_py.types import TYPES, GGMLType
from llama_py_tools.test_backend_ops.case import Array, Case, Init, Leaves, draw
from llama_py_tools.test_backend_ops.cases import all_cases

N_PARAMS = OP_PARAMS_SIZE // 4
LARGEST = 1 << 40  # bytes of a tensor


@cache
def numbers() -> dict[str, list[str]]:
    """Return names in the order of their numbers: of OP, and of the kinds of UNARY or GLU."""
    text = (files(__package__) / "ggml_ops.txt").read_text()
    parts = [p.split() for p in text.split("\n\n")[1:]]
    return {kind: names for kind, *names in parts}


@dataclass(frozen=True, slots=True)
class SourceLayout:
    """Type and layout of a node's source."""

    type: GGMLType
    ne: Shape
    nb: Shape

    @property
    def dense(self) -> bool:
        return not self.nb[0] or self.nb == contiguous_strides(self.type, self.ne)

    def __str__(self) -> str:
        layout = "" if self.dense else f"nb[{','.join(map(str, self.nb))}]"
        return f"{self.type}[{','.join(map(str, self.ne))}]{layout}"


class OpParams:
    """Parameter words, printed as `[index:value]` if nonzero."""

    def __init__(self, *words: int) -> None:
        self.words = words

    def __str__(self) -> str:
        return f"[{','.join(f'{i}:{n}' for i, n in enumerate(self.words) if n)}]"


def lines(graphs: Iterable[Graph]) -> Iterator[str]:
    """Yield the distinct computed nodes of graphs."""
    seen = set()
    for graph in graphs:
        for t in graph.compute_nodes():
            line = _line(t)
            if line and (what := line.rpartition(" ")[0]) not in seen:
                seen.add(what)
                yield line


def _line(t: Tensor) -> str:
    """Return the line of a node; "" for an op that ggml does not have."""
    kind = next((k for k, names in numbers().items() if t.op in names), "")
    if not kind:
        return ""
    number = numbers()["OP"].index(t.op if kind == "OP" else kind)
    words = [number, t.type.id, *t.ne, N_PARAMS, *struct.unpack(f"<{N_PARAMS}i", t.op_params())]
    sources = [s for s in t.src[: _first_gap(t)] if s is not None]
    words.append(len(sources))
    for s in sources:
        words += [s.type.id, *s.ne, *s.nb]
    return f"{' '.join(map(str, words))} {t.name.replace(' ', '_') or '-'}"


def _first_gap(t: Tensor) -> int:
    """Return the number of sources before a missing one; the format loses later sources, like
    llama.cpp."""
    return t.src.index(None) if None in t.src else len(t.src)


def read_cases(path: str | Path) -> list[Case]:
    """Return a case for each line; GGMLError for an invalid line or an unknown op."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as e:
        raise GGMLError(f"{path}: {e.strerror}") from e
    numbered = enumerate(text.splitlines(), 1)
    return [_case(path, number, line) for number, line in numbered if line.strip()]


def _case(path: str | Path, number: int, line: str) -> Case:
    try:
        case = _parse_line(line)
        case.graph()
    except (GGMLError, ValueError, struct.error) as e:
        raise GGMLError(f"{path}: line {number}: {e}") from e
    return case


class Words:
    """The words of a line, taken in order."""

    def __init__(self, line: str) -> None:
        self.rest = line.split()[::-1]

    def integer(self, low: int = -(1 << 63), high: int = 1 << 63) -> int:
        if not self.rest:
            raise ValueError("the line is truncated")
        n = int(self.rest.pop())
        if not low <= n <= high:
            raise ValueError(f"{n} must be {low} to {high}")
        return n

    def shape(self) -> Shape:
        a, b, c, d = (self.integer(0, LARGEST) for _ in range(4))
        return (a, b, c, d)

    def type(self) -> GGMLType:
        number = self.integer()
        if number not in TYPES:
            raise ValueError(f"unknown tensor type {number}; update llama-py")
        return TYPES[number]


def _parse_line(line: str) -> Case:
    words = Words(line)
    number, type, ne = words.integer(0, len(numbers()["OP"]) - 1), words.type(), words.shape()
    given = [words.integer(-(1 << 31), (1 << 31) - 1) for _ in range(words.integer(0, N_PARAMS))]
    raw = struct.pack(f"<{N_PARAMS}i", *given, *[0] * (N_PARAMS - len(given)))
    n_src = words.integer(0, MAX_SRC)
    sources = tuple(SourceLayout(words.type(), words.shape(), words.shape()) for _ in range(n_src))
    spec = _spec(number, given)
    args = {"type": type, "ne": ne, "op_params": OpParams(*given), "sources": sources}
    if words.rest and words.rest[-1] != "-":
        args = {"name": words.rest[-1], **args}
    build = partial(_build, spec, spec.layout.unpack(raw[: spec.layout.size]))
    return Case(spec.name, build, args, _max_bound(spec.name))


def _spec(number: int, params: list[int]) -> OpSpec:
    name = numbers()["OP"][number]
    if name in numbers():
        kinds = numbers()[name]
        kind = params[0] if params else 0
        if not 0 <= kind < len(kinds):
            raise ValueError(
                f"the first parameter of {name} must be 0 to {len(kinds) - 1}, got {kind}"
            )
        name = kinds[kind]
    if name not in OPS or OPS[name].view:
        raise ValueError(
            f"op {number} ({name}) is a view or unknown, so it cannot be tested; remove the line"
        )
    return OPS[name]


def _max_bound(op: str) -> float:
    """Return the largest bound of the op's own cases, since any of their layouts and types may
    occur."""
    return max((c.nmse_bound() for c in all_cases() if c.op == op and not c.fused), default=1e-7)


def _build(
    spec: OpSpec,
    params: tuple[object, ...],
    new: Leaves,
    type: GGMLType,
    ne: Shape,
    sources: tuple[SourceLayout, ...],
    op_params: OpParams,
    name: str = "",
) -> Tensor:
    """Build the node exactly like the file, without its op builder's checks."""
    leaves = [Tensor(s.type, s.ne, nb=None if s.dense else s.nb) for s in sources]
    for t in (*leaves, Tensor(type, ne)):
        if t.nbytes > LARGEST or t.ne[0] % t.type.block_size:
            raise ValueError(
                f"tensor {t} must have rows of whole blocks, and at most {LARGEST} bytes"
            )
    node = Tensor(type, ne, spec.name, tuple(leaves), params, name)
    node.src = tuple(_source(new, s, node, i) for i, s in enumerate(sources))
    if "inplace" in spec.fields and node.param("inplace") and node.src[0] is not None:
        return Tensor(type, ne, spec.name, node.src, params, name, view_src=node.src[0])
    return node


def _source(new: Leaves, s: SourceLayout, node: Tensor, i: int) -> Tensor:
    init = draw(node, i)
    if s.dense:
        return new(s.ne, s.type, init)
    if s.type.block_size == 1:
        init = _crop_init(init, s)
    n_blocks = -(-Tensor(s.type, s.ne, nb=s.nb).nbytes // s.type.type_size)
    memory = new((n_blocks * s.type.block_size,), s.type, init)
    return Tensor(s.type, s.ne, "VIEW", (memory,), (0,), nb=s.nb, view_src=memory)


def _crop_init(init: Init, s: SourceLayout) -> Init:
    """Return an initializer with the same values in the part of memory that the source sees."""

    def fill(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        memory = np.zeros(shape)
        strides = tuple(n // s.type.type_size * memory.itemsize for n in s.nb[::-1])
        np.lib.stride_tricks.as_strided(memory, s.ne[::-1], strides)[...] = init(rng, s.ne[::-1])
        return memory

    return fill
