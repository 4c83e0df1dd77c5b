"""Fuse nodes into steps by a backend's patterns, before memory planning.

A step runs at the position of its last node. Graphs are unchanged: nodes keep their order and their
sources. Values that are only used inside a step need no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from ggml_py._moved import former_names
from ggml_py.fusion.chain import Chain
from ggml_py.fusion.match import NodeRow
from ggml_py.fusion.pattern import Match, Pattern
from ggml_py.fusion.uses import Uses
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I8

K = TypeVar("K")
Launcher = Callable[[Match], list[K]]
Condition = Callable[[Match], str]
Over = Callable[[Match], Tensor | None]
First = Callable[[Tensor], bool]
Spent = Callable[[Match], Sequence[Tensor]]
Size = Callable[[Match], int]


def fits(_: Match) -> str:
    """Accept every match; use as `when`."""
    return ""


def f32_rows(*names: str) -> Condition:
    """Return a `when` that requires f32 and dense rows for the named operands."""

    def check(m: Match) -> str:
        other = [m[n] for n in names if m[n].type is not F32 or not m[n].has_contiguous_rows()]
        return f"needs dense rows of f32; got {other[0]}" if other else ""

    return check


def no_overwrite(_: Match) -> Tensor | None:
    """Return None; use as `over` for a result with separate memory."""
    return None


def any_node(_: Tensor) -> bool:
    """Accept every node; use as `first`."""
    return True


def none_spent(_: Match) -> Sequence[Tensor]:
    """Return no operands; use as `spent` if the step may read all operands until it ends."""
    return ()


def no_scratch(_: Match) -> int:
    return 0


def in_place(name: str) -> Over:
    """Return an `over` that selects the named operand if the result has the same layout."""
    return lambda m: m[name] if m[name].same_layout(m.result) else None


@dataclass(frozen=True)
class StepRule(Generic[K]):
    """Rule for matches of a pattern, or of chains, on a backend; see `Fusions.fuse`."""

    pattern: Pattern | Chain
    launcher: Launcher[K]
    first: First
    when: Condition
    over: Over
    spent: Spent
    scratch: Size

    @property
    def n_lines(self) -> int:
        return len(self.pattern.lines) if isinstance(self.pattern, Pattern) else 0

    def matches(self, row: NodeRow) -> Iterator[Match]:
        """Yield matches in a row of nodes; the caller may take their nodes during the iteration."""
        if isinstance(self.pattern, Chain):
            yield from self.pattern.matches(row)
            return
        for first in filter(self.first, row.of_op(self.pattern.lines[0].op)):
            match, _ = row.find(self.pattern, self.when, first)
            if match is not None:
                yield match


@dataclass(frozen=True)
class FusedNodes(Generic[K]):
    """Nodes that run as one step at the position of the last node.

    over   operand that the result may overwrite
    spent  operands that the step reads before it writes any part of the result
    """

    match: Match
    over: Tensor | None
    launcher: Launcher[K]
    spent: Sequence[Tensor] = ()

    def launch(self) -> list[K]:
        """Return the step's launchers."""
        return self.launcher(self.match)


class Fusions(Generic[K]):
    """Fusion patterns of a backend, with their launchers.

    Patterns with more nodes are tried first, then earlier declarations, and chains last. Each is
    tried on all consecutive nodes of one device; a node belongs to one step.
    """

    def __init__(self) -> None:
        self.rules: list[StepRule[K]] = []

    def fuse(
        self,
        pattern: Pattern | Chain,
        *,
        first: First = any_node,
        when: Condition = fits,
        over: Over = no_overwrite,
        spent: Spent = none_spent,
        scratch: Size = no_scratch,
    ) -> Callable[[Launcher[K]], Launcher[K]]:
        """Declare a launcher: it receives a match and returns launchers, like launchers of single
        nodes.

        first    True if a match may begin with a node; checked before all other conditions
        when     "" for an accepted match, else the reason for the rejection
        over     operand that the result may overwrite if no later node needs the operand
        spent    operands that the step reads before it writes any part of the result; the result
                 may overlap any part of an operand that no later node needs
        scratch  bytes of scratch memory during the step, then `Match.scratch`
        """

        def register(launcher: Launcher[K]) -> Launcher[K]:
            self.rules.append(StepRule(pattern, launcher, first, when, over, spent, scratch))
            self.rules.sort(key=lambda rule: -rule.n_lines)
            return launcher

        return register

    def steps(self, nodes: Sequence[Tensor], uses: Uses) -> list[Tensor | FusedNodes[K]]:
        """Return the nodes in order, with matches of patterns fused."""
        row = NodeRow(nodes, uses)
        steps: list[Tensor | FusedNodes[K] | None] = list(nodes)
        for rule in self.rules:
            if not rule.pattern.needs <= row.ops:
                continue
            for match in rule.matches(row):
                row.take(match)
                if size := rule.scratch(match):
                    match.scratch = Tensor(I8, (size,), name=f"{match.result.name} (scratch)")
                for t in match.nodes:
                    steps[row.place(t)] = None
                last = row.place(match.nodes[-1])
                steps[last] = FusedNodes(match, rule.over(match), rule.launcher, rule.spent(match))
        return [s for s in steps if s is not None]

    def why_not(self, pattern: Pattern, first: Tensor, nodes: Sequence[Tensor], uses: Uses) -> str:
        """Return "" if a step of this pattern begins with `first` and its nodes are free, else the
        reasons.
        """
        row = NodeRow(nodes, uses)
        rules = [r for r in self.rules if r.pattern is pattern]
        able = [r for r in rules if r.first(first)]
        if rules and not able:
            return f"{first} does not start {pattern}"
        found = [row.find(pattern, r.when, first) for r in able]
        if any(match is not None for match, _ in found):
            return ""
        reasons = (reason or f"{first} does not start {pattern}" for _, reason in found)
        return "; ".join(reasons) or f"no fused step for {pattern}"


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, Fused="FusedNodes", apart="no_overwrite")
