"""What a value must be. A rule reads well behind "must be"."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Protocol


class Rule(Protocol):
    def holds(self, value: Any) -> bool: ...


@dataclass(frozen=True)
class Numbers:
    """The finite numbers from `low` to `high`; `above`: greater than `low`."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    kind: ClassVar[Any] = Real
    names: ClassVar[tuple[str, str]] = ("a number", "a finite number")

    def holds(self, value: Any) -> bool:
        if not isinstance(value, self.kind) or isinstance(value, bool):
            return False
        enough = value > self.low if self.above else value >= self.low
        return bool(enough and -math.inf < value < math.inf and value <= self.high)

    def __str__(self) -> str:
        noun, unbounded = self.names
        if self.low == -math.inf:
            return unbounded
        if self.high == math.inf:
            return f"{noun} {'above' if self.above else 'of at least'} {self.low}"
        return f"{noun} in {'(' if self.above else '['}{self.low}, {self.high}]"


class Integers(Numbers):
    """The integers from `low` to `high`."""

    kind = Integral
    names = ("an integer", "an integer")


@dataclass(frozen=True)
class OneOf:
    """One of these values."""

    values: Collection[Any]

    def holds(self, value: Any) -> bool:
        return value in tuple(self.values)  # also what cannot be hashed

    def __str__(self) -> str:
        return f"one of {', '.join(map(str, self.values))}"


@dataclass(frozen=True)
class Each:
    """Values of which each holds by a rule."""

    rule: Rule

    def holds(self, values: Any) -> bool:
        return all(map(self.rule.holds, values))

    def __str__(self) -> str:
        return f"values that are each {self.rule}"


class Biases:
    """What is added to logits, by token id."""

    def holds(self, value: Any) -> bool:
        return isinstance(value, Mapping) and all(-math.inf <= v < math.inf for v in value.values())

    def __str__(self) -> str:
        return "finite numbers or -inf by token id"
