"""Rules for option values."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from llama_py.params.near import did_you_mean, shorten_list
from llama_py.params.texts import integer, number

_MAX_F32 = 3.4028234e38


@dataclass(frozen=True)
class ValueRule:
    """Rule for a value; `text` follows "must be" in errors. `parse` converts a text.

    words  allowed words
    """

    text: str
    holds: Callable[[Any], bool]
    parse: Callable[[str], Any] = str
    words: tuple[str, ...] = ()

    def hint(self, value: Any) -> str:
        """Return `; did you mean q8_0?`; "" without a similar word."""
        given = (value,) if isinstance(value, str) else value
        if not self.words or not isinstance(given, (tuple, list)):
            return ""
        wrong = next((one for one in given if one not in self.words), None)
        meant = did_you_mean(wrong, self.words, best=0.3) if isinstance(wrong, str) else ""
        return f"; {meant}" if meant else ""


def numbers(
    low: float = -math.inf, high: float = math.inf, *, above: bool = False, kind: Any = Real
) -> ValueRule:
    """Return a rule for finite float32 numbers from `low` to `high`; `above`: greater than
    `low`."""
    largest = math.inf if kind is Integral else _MAX_F32

    def holds(value: Any) -> bool:
        if not isinstance(value, kind) or isinstance(value, bool):
            return False
        enough = value > low if above else value >= low
        return bool(enough and value <= high and abs(value) <= largest and value - value == 0)

    noun = "an integer" if kind is Integral else "a number"
    text = f"{noun} in {'(' if above else '['}{low}, {high}]"
    if high == math.inf:
        text = f"{noun} {'above' if above else 'of at least'} {low}"
    if low == -math.inf:
        text = noun if kind is Integral else "a finite number"
        text += f" of at most {high}" if high < math.inf else ""
    return ValueRule(text, holds, integer if kind is Integral else number)


def zero_or(low: float, high: float) -> ValueRule:
    """Return a rule for 0, which has a special meaning, or a number from low to high."""
    return either(0, numbers(low, high))


def either(value: int, rule: ValueRule) -> ValueRule:
    """Return the rule of a value that `rule` allows, or of this special value."""
    alone = numbers(value, value)
    return ValueRule(
        f"{value}, or {rule.text}", lambda v: rule.holds(v) or alone.holds(v), rule.parse
    )


def integers(low: float = -math.inf, high: float = math.inf) -> ValueRule:
    return numbers(low, high, kind=Integral)


def choice_rule(values: Collection[Any]) -> ValueRule:
    known = tuple(values)  # unhashable values do not match
    words = tuple(map(str, known))
    return ValueRule(f"one of {shorten_list(words)}", lambda value: value in known, words=words)


def item_rule(rule: ValueRule) -> ValueRule:
    return ValueRule(
        f"values that are each {rule.text}", lambda values: all(map(rule.holds, values))
    )


_FINITE = numbers()


def _are_biases(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(key, (Integral, str)) and (_FINITE.holds(bias) or bias == -math.inf)
        for key, bias in value.items()
    )


def _are_scalars(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(key, str) and isinstance(one, (bool, int, float, str))
        for key, one in value.items()
    )


SCALARS = ValueRule("strings, numbers or booleans by name", _are_scalars)
BIASES = ValueRule("finite numbers or -inf by token id or string", _are_biases)
