"""A kind of input: how a case is made of a random number."""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random

from dev.torture.fuzz import kinds


@dataclass
class Case:
    """words: what was done to the input. run: gives it to the engine; says what came of it, or
    raises."""

    words: str
    run: Callable[[], str]


class Kind(ABC):
    """Everything a case does depends on its random numbers alone, not on the cases before."""

    def __init__(self, folder: Path) -> None:
        """Make what all cases start from; files of cases are written to the folder."""
        self.folder = folder

    @abstractmethod
    def case(self, rng: Random) -> Case:
        """The next case; `run` may use more of the random numbers."""


def names() -> list[str]:
    """Of all kinds: those of the files in `kinds`."""
    return sorted(file.name for file in pkgutil.iter_modules(kinds.__path__))


def find(name: str) -> type[Kind]:
    """The class in the file of that name."""
    module = import_module(f"{kinds.__name__}.{name}")
    classes = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Kind)]
    return next(c for c in classes if c.__module__ == module.__name__)


def numbered(kind: Kind, seed: int, number: int) -> Case:
    """The case that (kind, seed, number) stands for."""
    name = type(kind).__module__.rpartition(".")[2]
    return kind.case(Random(f"fuzz.kinds.{name} {seed} {number}"))  # as ever: numbers are noted
