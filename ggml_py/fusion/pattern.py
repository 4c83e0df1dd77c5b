"""Patterns of nodes that can run as one step, as text with one line per node.

    norm = RMS_NORM(x)
    product = MUL(norm, weight)

| form                   | means                                                           |
|------------------------|-----------------------------------------------------------------|
| `norm` of another line | the value of that node                                          |
| `~norm`                | that value, or a view of that value                             |
| `x`, not a line's name | an operand: any tensor; equal names are the same tensor         |
| `_`                    | an optional source that the step does not read                  |
| `norm! = ...`          | the value is also needed outside, like the last line's value    |
| `sum* = ADD(sum, x)`   | any number of such nodes, each reads the `sum` before it        |
| `kept+ = CPY(~x, _)`   | one or more such nodes, all with values that are needed outside |

Every line but the first reads a value of an earlier one, or an operand of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ggml_py._moved import Former
from ggml_py.fusion.uses import Uses
from ggml_py.tensor import Tensor

Found = dict[str, tuple[Tensor, ...]]
Readers = Callable[[Tensor, str], list[Tensor]]
NO_USES = Uses(())

_LINE = re.compile(r"(\w+)([!*+]?) = (\w+)\((~?\w+(?:, ~?\w+)*)\)")


@dataclass(frozen=True, slots=True)
class PatternLine:
    """One node of a pattern: its name, op and sources; `mark` is "!", "*", "+" or "".

    reads  of each relevant source: its number, name, and True if the node may read a view
    """

    name: str
    mark: str
    op: str
    sources: tuple[str, ...]
    reads: tuple[tuple[int, str, bool], ...]

    @classmethod
    def parse(cls, text: str) -> PatternLine:
        parts = _LINE.fullmatch(text.strip())
        if parts is None:
            raise ValueError(f"a line of a pattern must be `name = OP(source, ...)`, got {text!r}")
        sources = tuple(parts[4].split(", "))
        named = enumerate(sources)
        reads = tuple((i, s.lstrip("~"), s[0] == "~") for i, s in named if s != "_")
        return cls(parts[1], parts[2], parts[3], sources, reads)

    def bind(self, node: Tensor, found: Found) -> Found | None:
        """Return `found` with this line's names if the node fits the line; else None."""
        if node.op != self.op or len(node.src) != len(self.sources):
            return None
        bound = dict(found)
        for i, name, through_view in self.reads:
            s = node.src[i]
            if s is None:
                return None
            known = bound.get(name)
            if known is None:
                known = bound[name] = (s,)
            if known[-1] is not (s.root if through_view else s):
                return None
        bound[self.name] = (*found.get(self.name, ()), node)
        return bound


class Pattern:
    """Pattern with conditions on its matches; each returns "" or a reason against it.

    Raises ValueError for a malformed text.
    """

    def __init__(self, text: str, *when: Callable[[Match], str]) -> None:
        self.lines = tuple(PatternLine.parse(line) for line in text.strip().splitlines())
        self.when = when
        self.names = dict.fromkeys(line.name for line in self.lines)
        kept = {"!": slice(-1, None), "+": slice(None)}  # nodes whose values are needed outside
        self.outside = [(line.name, kept[line.mark]) for line in self.lines if line.mark in kept]
        self.needs = frozenset(line.op for line in self.lines if line.mark != "*")  # ops
        self.anchors: list[str] = []  # each line's source from earlier lines
        for i, line in enumerate(self.lines):
            earlier = [earlier.name for earlier in self.lines[:i]]
            operands = [s for line in self.lines[:i] for s in line.sources if s != "_"]
            read = [s.lstrip("~") for s in line.sources]
            known = [s for s in read if s in earlier] or [s for s in read if s in operands]
            views = [s for s in line.sources if s[0] == "~" and s[1:] not in earlier]
            if views or (i and not known):
                what = views[0] if views else line.name
                raise ValueError(
                    f"{what} of a pattern must read one of the lines before: {earlier}"
                )
            self.anchors.append(known[0] if known else "")

    def __str__(self) -> str:
        return "+".join(line.op + line.mark.strip("!+") for line in self.lines)

    def find(self, first: Tensor, readers: Readers) -> Iterator[Found]:
        """Yield every assignment of nodes to the lines, with `first` as the first node; longest
        first."""
        found = self.lines[0].bind(first, {})
        if found is not None:
            yield from self._extend(1, found, readers)

    def _extend(self, i: int, found: Found, readers: Readers) -> Iterator[Found]:
        if i == len(self.lines):
            yield found
            return
        line = self.lines[i]
        nodes = readers(found[self.anchors[i]][-1], line.op)
        if nodes:
            taken = {id(t) for named in found.values() for t in named}
            nodes = [n for n in nodes if id(n) not in taken]
        if line.mark == "+":
            every = found
            for node in nodes:
                every = line.bind(node, every) or every
            if every is not found:
                yield from self._extend(i + 1, every, readers)
            return
        for node in nodes:
            bound = line.bind(node, found)
            if bound is not None:
                yield from self._extend(i if line.mark == "*" else i + 1, bound, readers)
        if line.mark == "*":
            yield from self._extend(i + 1, found, readers)


class Match:
    """Nodes that fit a pattern, by the names of its lines and operands.

    nodes     in the order of the graph; the step runs in the place of the last
    kept      nodes whose values are needed outside; the values `inside` have no memory
    operands  tensors that the step reads
    uses      readers of all values in the graph
    scratch   memory for the step alone, if it asked for some
    """

    def __init__(
        self,
        found: Found,
        nodes: list[Tensor],
        kept: list[Tensor],
        operands: list[Tensor],
        uses: Uses,
    ) -> None:
        self.found = found
        self.nodes = nodes
        self.kept = kept
        self.result = kept[-1]
        self.inside = [t for t in nodes if t not in kept]
        self.operands = operands
        self.uses = uses
        self.scratch: Tensor | None = None

    @classmethod
    def from_nodes(
        cls, pattern: Pattern, found: Found, place: Callable[[Tensor], int], uses: Uses
    ) -> Match:
        """Return the match of nodes that fit the lines of a pattern."""
        nodes = sorted([t for name in pattern.names for t in found[name]], key=place)
        kept = [t for name, part in pattern.outside for t in found[name][part]]
        kept.append(found[pattern.lines[-1].name][-1])
        operands = [found[name][-1] for name in found if name not in pattern.names]
        return cls(found, nodes, kept, operands, uses)

    def settle(self) -> None:
        """Release the readers of values, which are no longer needed once the step exists."""
        self.uses = NO_USES

    def __getitem__(self, name: str) -> Tensor:
        """Return the tensor of that name; of several, the last."""
        return self.found[name][-1]

    def all_nodes(self, name: str) -> tuple[Tensor, ...]:
        """Return all nodes of a line that may match several."""
        return self.found[name]

    of = Former("from_nodes")
    all = Former("all_nodes")
