"""Cases that go wrong in every way, to see that each is found: for the tests of the fuzzers."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable
from random import Random

import numpy as np

from dev.torture.fuzz.kind import Case, Kind
from ggml_py.errors import GGMLError


def refuse() -> str:
    raise GGMLError("no, for a reason; do something else")


def crash() -> str:
    os.kill(os.getpid(), signal.SIGSEGV)
    return "not reached"


def hang() -> str:
    time.sleep(1000)
    return "not reached"


def late() -> str:
    """Return after the time limit of 2 s, but within the extended limit."""
    time.sleep(3)
    return "late"


def foreign() -> str:
    raise KeyError("general.architecture")


def raw() -> str:
    raise GGMLError("no: \x1b[2J")


def warn() -> str:
    warnings.warn("overflow", RuntimeWarning, stacklevel=2)
    return "a warning"


def swallow() -> str:
    return str(np.ones(5 << 30, np.uint8).size)  # more than a worker may have


WAYS: tuple[Callable[[], str], ...] = (
    refuse,
    crash,
    foreign,
    hang,
    late,
    raw,
    warn,
    swallow,
    lambda: "well",
)


class Itself(Kind):
    """the fuzzers themselves: cases that go wrong, in turn"""

    def case(self, rng: Random) -> Case:
        way = rng.choice(WAYS)
        return Case(way.__name__, way)
