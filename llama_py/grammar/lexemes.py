"""Splitting of a grammar into lexemes with a longest match that is always right.

llguidance's lexer takes the longest text that a lexeme matches, without backtracking. GBNF has no
lexer: `"a"* "ab"` is literal. So if a lexeme could end while another continues, it and its possible
successors are split into their parts, finally into single characters, which cannot continue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from llama_py.grammar.automata import Automaton, automaton, meeting
from llama_py.grammar.nodes import Ranges, Ref, Rules, TokenChoice, meet, merge_ranges
from llama_py.grammar.shape import (
    AlternativePart,
    Leaf,
    Part,
    Regular,
    RepeatCount,
    RuleSizes,
    SequencePart,
)

MAX_ROUNDS = 12
MAX_STEPS = 200_000  # limit of the search for lexemes to split, about a second


def cut(rules: Rules) -> RuleSizes:
    """Return the grammar as rules of lexemes that match, longest first, exactly the same texts."""
    regular, wrong, steps = Regular(rules), set[str](), 0
    for _ in range(MAX_ROUNDS):
        shape = RuleSizes(regular, wrong)
        look = _Look(shape, MAX_STEPS - steps)
        more = look.too_long()
        if look.steps >= look.max_steps:
            break
        if not more:
            return shape
        wrong |= more
        steps += look.steps
    return RuleSizes(regular, wrong, cut_all=True)


class _Look:
    """Relation of lexemes that may meet; sets of lexemes are bits of a number."""

    def __init__(self, shape: RuleSizes, max_steps: int) -> None:
        self.shape, self.max_steps, self.steps = shape, max_steps, 0
        rules = shape._regular.rules
        self.automata = [
            Automaton() if isinstance(leaf, TokenChoice) else automaton(leaf, rules)
            for leaf in shape.leaves
        ]
        self.begins = [a.begins for a in self.automata]
        self.first, self.empty = dict.fromkeys(shape.rules, 0), dict.fromkeys(shape.rules, False)
        self.after = [0] * len(shape.leaves)  # FOLLOW of each leaf
        self.after_rule = dict.fromkeys(shape.rules, 0)
        self._fill()

    def too_long(self) -> set[str]:
        """Return the expressions of lexemes that must be split."""
        found = set[str]()
        follows = [self._begin_ranges(bits) for bits in self.after]
        seen, left = set[tuple[int, int]](), list(self._pairs(self.first["root"]))
        left += [pair for bits in {*self.after} for pair in self._pairs(bits)]
        while left and self.steps < self.max_steps:
            pair = left.pop()
            self.steps += 1
            if pair in seen:
                continue
            seen.add(pair)
            i, j = pair
            if not meet(self.begins[i], self.begins[j]):
                continue
            same = False
            for a, b in {(i, j), (j, i)}:
                met = meeting(self.automata[a], self.automata[b], self.max_steps - self.steps)
                self.steps += met.n_steps
                same |= met.same
                if meet(met.beyond, follows[a]):
                    found.add(self.shape.texts[b])
            if same and i != j:
                left += [
                    (min(a, b), max(a, b))
                    for a in _bits(self.after[i])
                    for b in _bits(self.after[j])
                ]
        return found

    def _pairs(self, bits: int) -> Iterator[tuple[int, int]]:
        numbers = [*_bits(bits)]
        self.steps += len(numbers) ** 2 // 2
        if self.steps < self.max_steps:
            yield from ((a, b) for k, a in enumerate(numbers) for b in numbers[k:])

    def _begin_ranges(self, bits: int) -> Ranges:
        return merge_ranges([r for i in _bits(bits) for r in self.begins[i]])

    def _fill(self) -> None:
        """Compute the FIRST and FOLLOW sets."""
        users = defaultdict(set)
        for name, part in self.shape.rules.items():
            for ref in _refs(part):
                users[ref].add(name)
        left = dict.fromkeys(self.shape.rules)
        while left:
            name, _ = left.popitem()
            first, empty = self._first_ranges(self.shape.rules[name])
            if (first, empty) != (self.first[name], self.empty[name]):
                self.first[name], self.empty[name] = first, empty
                left |= dict.fromkeys(users[name])
        left = dict.fromkeys(self.shape.rules)
        while left:
            name, _ = left.popitem()
            left |= dict.fromkeys(self._follow(self.shape.rules[name], self.after_rule[name]))

    def _first_ranges(self, part: Part) -> tuple[int, bool]:
        if isinstance(part, Leaf):
            return 1 << part.number, self.automata[part.number].empty
        if isinstance(part, Ref):
            return self.first[part.name], self.empty[part.name]
        if isinstance(part, RepeatCount):
            first, empty = self._first_ranges(part.item)
            return first, empty or part.low == 0
        found = [self._first_ranges(one) for one in part.items]
        if isinstance(part, AlternativePart):
            bits = 0
            for first, _ in found:
                bits |= first
            return bits, any(empty for _, empty in found)
        bits, empty = 0, True
        for first, may_be_empty in found:
            bits |= first if empty else 0
            empty = empty and may_be_empty
        return bits, empty

    def _follow(self, part: Part, after: int) -> Iterator[str]:
        """Update FOLLOW of a part and yield the rules with a larger FOLLOW."""
        if isinstance(part, Leaf):
            self.after[part.number] |= after
        elif isinstance(part, Ref):
            if after & ~self.after_rule[part.name]:
                self.after_rule[part.name] |= after
                yield part.name
        elif isinstance(part, RepeatCount):
            again = part.high is None or part.high > 1
            yield from self._follow(
                part.item, after | (self._first_ranges(part)[0] if again else 0)
            )
        elif isinstance(part, AlternativePart):
            for one in part.items:
                yield from self._follow(one, after)
        else:
            for one in reversed(part.items):
                yield from self._follow(one, after)
                first, empty = self._first_ranges(one)
                after = first | (after if empty else 0)


def _bits(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _refs(part: Part) -> Iterator[str]:
    left = [part]
    while left:
        part = left.pop()
        if isinstance(part, Ref):
            yield part.name
        elif isinstance(part, (SequencePart, AlternativePart)):
            left += part.items
        elif isinstance(part, RepeatCount):
            left.append(part.item)
