"""A kind of input: how a case is made of a random number."""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from typing import ClassVar

from fuzz import kinds


@dataclass
class Case:
    """words: what was done to the input. run: gives it to the engine; says what came of it, or
    raises."""

    words: str
    run: Callable[[], str]


class Kind(ABC):
    """Everything a case does depends on its random numbers alone, not on the cases before."""

    name: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        """Make what all cases start from; files of cases are written to the folder."""
        self.folder = folder

    @abstractmethod
    def case(self, rng: Random) -> Case:
        """The next case; `run` may use more of the random numbers."""


def known() -> dict[str, type[Kind]]:
    """By name: the classes in the files of `kinds`."""
    found: dict[str, type[Kind]] = {}
    for file in pkgutil.iter_modules(kinds.__path__):
        module = import_module(f"{kinds.__name__}.{file.name}")
        for value in vars(module).values():
            own = isinstance(value, type) and value.__module__ == module.__name__
            if own and issubclass(value, Kind):
                found[value.name] = value
    return found


def numbered(kind: Kind, seed: int, number: int) -> Case:
    """The case that (kind, seed, number) stands for."""
    return kind.case(Random(f"{kind.name} {seed} {number}"))
