"""Orders as bytes: tensors without the graph before them, steps of several nodes by their rule.

Only processes of one program exchange them.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ggml_py.backend import Buffer, Fuses, HostBuffer, Work
from ggml_py.errors import BackendError
from ggml_py.fusion import FusedNodes, Fusions
from ggml_py.fusion.pattern import Match
from ggml_py.fusion.uses import Uses
from ggml_py.tensor import Shape, Tensor
from ggml_py.types import TYPES, GGMLType

Number = int  # index of a tensor among the sent tensors
ITSELF = -1  # a tensor that is its source: the destination of a cast


class RankMemory:
    """A number that a rank knows a buffer by."""

    def __init__(self, rank: int, handle: int) -> None:
        self.rank, self.handle = rank, handle


class TensorRow(NamedTuple):
    """A tensor as a row; sources and the tensor it is a view of are numbers of earlier rows."""

    type: GGMLType
    ne: Shape
    op: str
    src: tuple[Number | None, ...]
    params: tuple[Any, ...]
    name: str
    nb: Shape
    view_src: Number | None
    view_offs: int
    flags: int
    layout: str
    buffer: Buffer | None
    offset: int


@dataclass(frozen=True, slots=True)
class FusedStep:
    """A step of several nodes: the number of its rule, and its match."""

    rule: int
    found: Mapping[str, Sequence[Number]]
    nodes: Sequence[Number]
    kept: Sequence[Number]
    operands: Sequence[Number]
    scratch: Number | None
    over: Number | None


@dataclass(slots=True)
class Steps:
    """Work for a device, as rows, since a chain of tensors is too deep to be pickled."""

    rows: list[TensorRow] = field(default_factory=list)
    steps: list[Number | FusedStep] = field(default_factory=list)


class _Table:
    """Numbers tensors: nodes of some steps with their sources, all others without."""

    def __init__(self, nodes: Iterable[Tensor] = ()) -> None:
        self.rows: list[TensorRow] = []
        self._nodes = {id(t) for t in nodes}
        self._numbers: dict[int, Number] = {}

    def number(self, t: Tensor) -> Number:
        if id(t) not in self._numbers:
            src = self._sources(t) if id(t) in self._nodes else ()
            root = self.optional_number(t.view_src)
            self._numbers[id(t)] = len(self.rows)
            self.rows.append(
                TensorRow(
                    t.type,
                    t.ne,
                    t.op,
                    src,
                    t.params,
                    t.name,
                    t.nb,
                    root,
                    t.view_offs,
                    t.flags,
                    t.layout,
                    t.buffer,
                    t.offset,
                )
            )
        return self._numbers[id(t)]

    def optional_number(self, t: Tensor | None) -> Number | None:
        return None if t is None else self.number(t)

    def numbers(self, tensors: Iterable[Tensor]) -> tuple[Number, ...]:
        return tuple(map(self.number, tensors))

    def _sources(self, t: Tensor) -> tuple[Number | None, ...]:
        return tuple(ITSELF if s is t else self.optional_number(s) for s in t.src)


def steps_to_send(work: Sequence[Work], fusions: Fusions[Any]) -> Steps:
    """Return work for a device in the format of messages."""
    nodes = [
        t for step in work for t in (step.match.nodes if isinstance(step, FusedNodes) else [step])
    ]
    table, steps = _Table(nodes), Steps()
    for t in nodes:  # this order limits the recursion of `number`
        table.number(t)
    for step in work:
        one = (
            _fused_row(step, table, fusions) if isinstance(step, FusedNodes) else table.number(step)
        )
        steps.steps.append(one)
    steps.rows = table.rows
    return steps


def _fused_row(step: FusedNodes[Any], table: _Table, fusions: Fusions[Any]) -> FusedStep:
    m = step.match
    rule = next(i for i, r in enumerate(fusions.rules) if r.launcher is step.launcher)
    return FusedStep(
        rule,
        {name: table.numbers(some) for name, some in m.found.items()},
        table.numbers(m.nodes),
        table.numbers(m.kept),
        table.numbers(m.operands),
        table.optional_number(m.scratch),
        table.optional_number(step.over),
    )


def leaf_to_send(t: Tensor) -> Tensor:
    """Return a tensor without the nodes that made it."""
    return _tensors(_leaf_rows(t))[-1]


def _leaf_rows(t: Tensor) -> list[TensorRow]:
    table = _Table()
    table.number(t)
    return table.rows


def steps_to_run(sent: Steps, device: object) -> list[Work]:
    """Return the work of a message from `steps_to_send`, for the device that runs it."""
    tensors = _tensors(sent.rows)
    rules = device.fusions.rules if isinstance(device, Fuses) else []
    return [
        _match(s, tensors, rules) if isinstance(s, FusedStep) else tensors[s] for s in sent.steps
    ]


def _tensors(rows: Sequence[TensorRow]) -> list[Tensor]:
    made: list[Tensor] = []
    for r in rows:
        root = None if r.view_src is None else made[r.view_src]
        t = Tensor(r.type, r.ne, r.op, (), r.params, r.name, r.nb, root)
        t.src = tuple(None if i is None else t if i == ITSELF else made[i] for i in r.src)
        t.view_offs, t.flags, t.layout = r.view_offs, r.flags, r.layout
        t.buffer, t.offset = r.buffer, r.offset
        made.append(t)
    return made


def _match(step: FusedStep, tensors: Sequence[Tensor], rules: Sequence[Any]) -> FusedNodes[Any]:
    def select(numbers: Sequence[Number]) -> list[Tensor]:
        return [tensors[i] for i in numbers]

    found = {name: tuple(select(numbers)) for name, numbers in step.found.items()}
    m = Match(found, select(step.nodes), select(step.kept), select(step.operands), Uses(()))
    m.scratch = None if step.scratch is None else tensors[step.scratch]
    over = None if step.over is None else tensors[step.over]
    return FusedNodes(m, over, rules[step.rule].launcher)


def dumps(order: object) -> bytes:
    """Return an order as bytes; BackendError for memory of this rank, which others cannot read."""
    out = io.BytesIO()
    _Pickler(out, pickle.HIGHEST_PROTOCOL).dump(order)
    return out.getvalue()


def loads(data: bytes, buffer: Callable[[int], Buffer]) -> Any:
    """Return the order in the bytes; `buffer` returns the buffer of a handle here."""
    return _Unpickler(data, buffer).load()


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: object) -> tuple[str, int] | None:
        if isinstance(obj, GGMLType):
            return "type", obj.id
        if isinstance(obj, RankMemory):
            return "buffer", obj.handle
        if isinstance(obj, HostBuffer):
            raise BackendError("a step for another rank reads memory of this rank")
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, buffer: Callable[[int], Buffer]) -> None:
        super().__init__(io.BytesIO(data))
        self._buffer = buffer

    def persistent_load(self, pid: tuple[str, int]) -> object:
        kind, number = pid
        return TYPES[number] if kind == "type" else self._buffer(number)
