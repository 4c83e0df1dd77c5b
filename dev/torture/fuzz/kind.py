"""Base class of kinds of input, which make a case from a random number."""

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
    """words: the changes to the input. run: passes the input to the engine; returns the result or
    raises."""

    words: str
    run: Callable[[], str]


class Kind(ABC):
    """Everything a case does depends on its random numbers alone, not on the cases before."""

    def __init__(self, folder: Path) -> None:
        """Prepare the start data of all cases; cases write their files to the folder."""
        self.folder = folder

    @abstractmethod
    def case(self, rng: Random) -> Case:
        """Return the next case; `run` may draw more random numbers."""


def names() -> list[str]:
    """Return the names of all kinds: the files in `kinds`."""
    return sorted(file.name for file in pkgutil.iter_modules(kinds.__path__))


def find(name: str) -> type[Kind]:
    """Return the class in the file of that name."""
    module = import_module(f"{kinds.__name__}.{name}")
    classes = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Kind)]
    return next(c for c in classes if c.__module__ == module.__name__)


def numbered(kind: Kind, seed: int, number: int) -> Case:
    """Return the case of (kind, seed, number)."""
    name = type(kind).__module__.rpartition(".")[2]
    return kind.case(Random(f"fuzz.kinds.{name} {seed} {number}"))  # numbers are recorded
