"""Tree of a graph's nodes by section, function and statement."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType

from ggml_py.graph import Graph
from llama_py_tools.graph.read.record import Call, CallRecorder, MadeTensor, Step, room
from llama_py_tools.graph.read.source import Excerpt, Module, module

ALIKE = 0.75  # share of equal lines for two layers of one type


@dataclass(slots=True)
class ReadNode:
    """A node: its number in the graph, its layer or None, and the record of its creation."""

    number: int
    layer: int | None
    made: MadeTensor


@dataclass(slots=True)
class Statement:
    """Nodes that a statement makes itself, and functions that it calls."""

    nodes: list[ReadNode] = field(default_factory=list)
    calls: dict[CodeType, Function] = field(default_factory=dict)

    @property
    def layers(self) -> list[int]:
        """Layers of the nodes."""
        return sorted({n.layer for n in self.nodes if n.layer is not None})

    def first_layer_nodes(self) -> list[ReadNode]:
        """Return the nodes of the first layer."""
        first = self.layers[0] if self.layers else None
        return [n for n in self.nodes if n.layer == first]


@dataclass(slots=True)
class Function:
    """A function with the statements that it runs in a section."""

    code: CodeType
    statements: dict[Excerpt, Statement] = field(default_factory=dict)

    @property
    def module(self) -> Module:
        return module(self.code.co_filename)

    @property
    def name(self) -> str:
        return self.module.name(self.code)

    @property
    def place(self) -> str:
        """Path and first line."""
        return f"{self.module.path}:{self.code.co_firstlineno}"

    def list_statements(self) -> list[tuple[Excerpt, Statement]]:
        return sorted(self.statements.items(), key=lambda item: item[0])

    def nodes(self) -> Iterator[ReadNode]:
        for statement in self.statements.values():
            yield from statement.nodes
            for called in statement.calls.values():
                yield from called.nodes()


@dataclass(slots=True)
class Section:
    """A part of the graph: layers of one kind, or nodes outside of layers."""

    title: str
    layers: list[int]
    functions: dict[CodeType, Function] = field(default_factory=dict)

    def nodes(self) -> Iterator[ReadNode]:
        for function in self.functions.values():
            yield from function.nodes()


def sections(graph: Graph, recorder: CallRecorder) -> list[Section]:
    """Put every node of the graph into one section, in the order of the program."""
    nodes = _nodes(graph, recorder)
    parts: list[tuple[str, list[ReadNode]]] = []
    once = [n for n in nodes if _made_once(n.made)]
    rest = [n for n in nodes if not _made_once(n.made)]
    places = [k for k, n in enumerate(rest) if n.layer is not None]
    first, last = (places[0], places[-1]) if places else (len(rest), len(rest))
    outside = [(k, n) for k, n in enumerate(rest) if n.layer is None]
    parts.append(("Embedding" if places else "Graph", [n for k, n in outside if k < first]))
    parts.append(("Inputs made once", once))
    parts.append(("Between layers", [n for k, n in outside if first < k < last]))
    kinds = [(_title(group), group) for group in _kinds([n for n in rest if n.layer is not None])]
    parts[2:2] = kinds
    parts.append(("Output", [n for k, n in outside if k > last]))
    shared = _shared_calls(part for _, part in parts)
    return [_section(title, part, shared) for title, part in parts if part]


def _nodes(graph: Graph, recorder: CallRecorder) -> list[ReadNode]:
    """Return the nodes in order of creation, each with the layer from its calls."""
    numbers = {id(t): i for i, t in enumerate(graph.nodes)}
    return [
        ReadNode(numbers[key], _layer(m), m) for key, m in recorder.made.items() if key in numbers
    ]


def _layer(made: MadeTensor) -> int | None:
    if _made_once(made):
        return None
    return next((call.il for call, _ in made.steps if call.il is not None), None)


def _made_once(made: MadeTensor) -> bool:
    return _first_once(made) is not None


def _first_once(made: MadeTensor) -> int | None:
    """Return the step that makes a tensor for all layers when the first layer requests it."""
    for k, (call, _) in enumerate(made.steps):
        name = call.code.co_name
        if room(call.code) == "graph" and (name == "shared" or name.startswith("inp_")):
            return k
    return None


def visible_steps(made: MadeTensor) -> tuple[Step, ...]:
    """Return the steps that a reader wants to see: models and blocks, without their helpers."""
    start = _first_once(made)
    if start is not None:
        return made.steps[start:]
    return tuple(s for s in made.steps if room(s[0].code) in ("models", "blocks")) or made.steps


def _kinds(nodes: Sequence[ReadNode]) -> list[list[ReadNode]]:
    """Group layers whose nodes were created by the same lines, or mostly the same lines."""
    layers: dict[int | None, list[ReadNode]] = {}
    for n in nodes:
        layers.setdefault(n.layer, []).append(n)
    found: list[tuple[set[object], list[ReadNode]]] = []
    for own in layers.values():
        lines = {_place(n.made) for n in own if not _selects(n.made)}
        for known, group in found:
            common = known & lines
            if common in (known, lines) and len(common) >= ALIKE * max(len(known), len(lines)):
                known |= lines
                group += own
                break
        else:
            found.append((lines, list(own)))
    return [group for _, group in found]


def _place(made: MadeTensor) -> object:
    return tuple((call.code, line) for call, line in visible_steps(made))


def _selects(made: MadeTensor) -> bool:
    """Return True if the node only selects output rows, like in the last layer."""
    return any(c.code.co_name == "outputs" and room(c.code) == "graph" for c, _ in made.steps)


def _title(nodes: Sequence[ReadNode]) -> str:
    """Name the blocks that the layers call, outermost only."""
    blocks = dict.fromkeys(_block(n.made) for n in nodes)
    return ", ".join(_words(name) for name in blocks if name) or "layer"


def _block(made: MadeTensor) -> str:
    """Return the class of a tensor's outermost block; "" for the layer itself."""
    inside = [call for call, _ in visible_steps(made) if call.il is not None]
    layer = inside[0].owner if inside and room(inside[0].code) == "models" else ""
    names = (c.owner for c in inside if c.code.co_name == "__call__" and c.owner != layer)
    return next(names, "")


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()


def _shared_calls(parts: Iterable[Sequence[ReadNode]]) -> set[Call]:
    """Return calls that make nodes of several sections, such as the loop over layers."""
    seen: dict[Call, int] = {}
    found = set[Call]()
    for number, part in enumerate(parts):
        for n in part:
            for call, _ in visible_steps(n.made):
                if seen.setdefault(call, number) != number:
                    found.add(call)
    return found


def _section(title: str, nodes: Sequence[ReadNode], shared: set[Call]) -> Section:
    made = Section(title, sorted({n.layer for n in nodes if n.layer is not None}))
    for n in nodes:
        functions, steps = made.functions, visible_steps(n.made)
        start = max((k for k, (call, _) in enumerate(steps) if call in shared), default=0)
        for call, line in steps[start:]:
            function = functions.setdefault(call.code, Function(call.code))
            if call not in shared:
                for excerpt in function.module.excerpts(call.lines):
                    function.statements.setdefault(excerpt, Statement())
            at = function.statements.setdefault(function.module.excerpt(line), Statement())
            functions = at.calls
        at.nodes.append(n)
    return made
