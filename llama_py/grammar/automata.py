"""Regular parts of a grammar as automata: their first characters, and continuations of one after
the end of another.

Bounded repetitions become unbounded: an automaton accepts all texts of its part, and more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from llama_py.grammar.nodes import (
    Alt,
    Chars,
    Node,
    Ranges,
    Ref,
    Repeat,
    Rules,
    Seq,
    meet,
    merge_ranges,
)


@dataclass
class Automaton:
    """Glushkov's automaton: a state for each character's place. next: places that may follow a
    place."""

    ranges: list[Ranges] = field(default_factory=list)
    next: list[set[int]] = field(default_factory=list)
    first: set[int] = field(default_factory=set)
    last: set[int] = field(default_factory=set)
    empty: bool = False  # whether it takes the empty text

    @property
    def begins(self) -> Ranges:
        return merge_ranges([r for place in self.first for r in self.ranges[place]])


def automaton(node: Node, rules: Rules) -> Automaton:
    """Make the automaton of a part without recursion."""
    found = Automaton()
    found.first, found.last, found.empty = _add(found, node, rules)
    return found


Ends = tuple[set[int], set[int], bool]  # first and last places, and whether it may be empty


def _add(a: Automaton, node: Node, rules: Rules) -> Ends:
    if isinstance(node, Chars):
        a.ranges.append(node.ranges)
        a.next.append(set())
        return {len(a.next) - 1}, {len(a.next) - 1}, False
    if isinstance(node, Ref):
        return _add(a, rules[node.name], rules)
    if isinstance(node, Repeat):
        first, last, empty = _add(a, node.item, rules)
        if node.high is None or node.high > 1:
            for place in last:
                a.next[place] |= first
        if node.high == 0:
            return set(), set(), True
        return first, last, empty or node.low == 0
    if isinstance(node, Alt):
        parts = [_add(a, one, rules) for one in node.items]
        return (
            set().union(*(p[0] for p in parts)),
            set().union(*(p[1] for p in parts)),
            any(p[2] for p in parts),
        )
    assert isinstance(node, Seq)
    first, last, empty = set[int](), set[int](), True
    for one in node.items:
        more_first, more_last, more_empty = _add(a, one, rules)
        for place in last:
            a.next[place] |= more_first
        first |= more_first if empty else set()
        last = more_last | (last if more_empty else set())
        empty = empty and more_empty
    return first, last, empty


@dataclass
class Intersection:
    """Overlap of two automata. same: both match some non-empty text. beyond: characters that
    continue the second after a text of the first."""

    same: bool = False
    beyond: Ranges = ()
    n_steps: int = 0


def meeting(a: Automaton, b: Automaton, most: int) -> Intersection:
    """Return the overlap of two automata; most: limit of steps."""
    left = [(p, q) for p in a.first for q in b.first if meet(a.ranges[p], b.ranges[q])]
    seen, found, beyond = {*left}, Intersection(), set[int]()
    while left and found.n_steps < most:
        p, q = left.pop()
        if p in a.last:
            found.same |= q in b.last
            beyond |= b.next[q]
        found.n_steps += len(a.next[p]) * len(b.next[q])
        for pair in ((x, y) for x in a.next[p] for y in b.next[q]):
            if pair not in seen and meet(a.ranges[pair[0]], b.ranges[pair[1]]):
                seen.add(pair)
                left.append(pair)
    found.beyond = merge_ranges([r for place in beyond for r in b.ranges[place]])
    return found
