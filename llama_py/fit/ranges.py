"""Regular expressions for sets of numbers, such as layer numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby


def match_numbers(numbers: Iterable[int]) -> str:
    """Return an expression that matches only these numbers of up to three digits:
    `(3|4|1[0-9])`."""
    return f"({'|'.join(_parts(sorted(set(numbers))))})"


def _parts(numbers: list[int]) -> Iterator[str]:
    for tens, some in groupby(numbers, key=lambda n: n // 10):
        units = [n % 10 for n in some]
        yield f"{tens or ''}{_digit(units)}"


def _digit(units: list[int]) -> str:
    """Return an expression of one digit; runs become ranges."""
    if len(units) == 1:
        return str(units[0])
    runs: list[list[int]] = []
    for n in units:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    inside = (f"{r[0]}-{r[-1]}" if len(r) > 2 else "".join(map(str, r)) for r in runs)
    return f"[{''.join(inside)}]"
