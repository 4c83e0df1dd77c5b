"""Division of a grammar into rules and lexemes, which llguidance matches as regular expressions.

A lexeme has the maximum size: adjacent regular parts are one lexeme. Expressions in `cut` are
split into their parts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from llama_py.grammar.nodes import Alt, Chars, Node, Ref, Repeat, Rules, Seq, TokenChoice, refs
from llama_py.grammar.regex import regex

MAX_PLACES = 400  # characters in a lexeme
MAX_DEPTH = 120


@dataclass(frozen=True, slots=True)
class Leaf:
    """A lexeme or a token, by its number."""

    number: int


Part: TypeAlias = "Leaf | Ref | SequencePart | AlternativePart | RepeatCount"


@dataclass(frozen=True, slots=True)
class SequencePart:
    items: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class AlternativePart:
    items: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class RepeatCount:
    item: Part
    low: int
    high: int | None


class Regular:
    """Measures regular parts of sufficiently small size, cached per grammar."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.sizes: dict[str, tuple[int, int]] = {}  # characters and depth of a rule
        needs = {name: Counter(ref.name for ref in refs(node)) for name, node in rules.items()}
        users = defaultdict(list)
        for name, used in needs.items():
            for one in used:
                users[one].append(name)
        left = [name for name, used in needs.items() if not used]
        while left:
            name = left.pop()
            self.sizes[name] = self.size(rules[name])
            for user in users[name]:
                del needs[user][name]
                if not needs[user]:
                    left.append(user)

    def size(self, node: Node) -> tuple[int, int]:
        """Return characters and depth of a node; beyond the limits if it is not regular."""
        if isinstance(node, Chars):
            return 1, 1
        if isinstance(node, TokenChoice):
            return MAX_PLACES + 1, 1
        if isinstance(node, Ref):
            n, depth = self.sizes.get(node.name, (MAX_PLACES + 1, 1))
            return n, depth + 1
        if isinstance(node, Repeat):
            n, depth = self.size(node.item)
            return n, depth + 1
        parts = [self.size(one) for one in node.items]
        return sum(n for n, _ in parts), 1 + max((depth for _, depth in parts), default=0)

    def __call__(self, node: Node) -> bool:
        n, depth = self.size(node)
        return n <= MAX_PLACES and depth <= MAX_DEPTH


class RuleSizes:
    """rules   rules of parts; the first is the root
    leaves  lexemes and tokens by number; texts: their regular expressions
    """

    def __init__(self, regular: Regular, cut: Collection[str], cut_all: bool = False) -> None:
        self._regular, self._cut, self._cut_all = regular, cut, cut_all
        self.leaves: list[Node] = []
        self.texts: list[str] = []
        self._numbers: dict[str | TokenChoice, int] = {}
        self.rules: dict[str, Part] = {}
        left = ["root"]
        while left:
            name = left.pop()
            if name not in self.rules:
                self._wanted: list[str] = []
                self.rules[name] = self._part(regular.rules[name])
                left += self._wanted

    def _part(self, node: Node) -> Part:
        whole = self._as_leaf(node)
        if whole is not None:
            return whole
        if isinstance(node, Ref):
            self._wanted.append(node.name)
            return node
        if isinstance(node, Repeat):
            inner = SequencePart(()) if node.high == 0 else self._part(node.item)
            return inner if inner == SequencePart(()) else RepeatCount(inner, node.low, node.high)
        assert isinstance(node, (Seq, Alt))
        kind = Seq if isinstance(node, Seq) else Alt
        parts: list[Part] = []
        run: list[Node] = []
        for one in (*node.items, None):
            if one is not None and not self._cut_all and self._regular(one):
                run.append(one)
                continue
            together = self._as_leaf(kind(tuple(run))) if len(run) > 1 else None
            parts += [together] if together is not None else map(self._part, run)
            run = []
            parts += [] if one is None else [self._part(one)]
        return SequencePart(tuple(parts)) if kind is Seq else AlternativePart(tuple(parts))

    def _as_leaf(self, node: Node) -> Leaf | None:
        """Return the node as one lexeme, if possible."""
        if isinstance(node, TokenChoice):
            return self._leaf(node, node, "")
        single = isinstance(node, Chars)
        if not single and (self._cut_all or not self._regular(node)):
            return None
        text = regex(node, self._regular.rules)
        if text in self._cut and not single:
            return None
        return self._leaf(node, text, text) if text else None

    def _leaf(self, node: Node, key: str | TokenChoice, text: str) -> Leaf:
        if key not in self._numbers:
            self._numbers[key] = len(self.leaves)
            self.leaves.append(node)
            self.texts.append(text)
        return Leaf(self._numbers[key])
