"""Tests of the comparison, and the lists of tests to run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

REPEATED = 8  # decodes of a small batch in one run, which would be short otherwise
COLD = ("first", "memory")  # need a separate process


@dataclass(frozen=True)
class Test:
    """One line of the table; a run returns seconds, or bytes for "memory".

    kind    pp: a prompt of n tokens; tg: n tokens one by one; batch: n tokens of each of n_seqs
            sequences, decoded together; at once: n tokens in one decode, with the logits of all
            (the cost of verifying a draft); warm: a prompt of n tokens up to the first logits;
            new: like warm, and creating the context is part of the time;
            first: like warm, but from the start of a process; memory: the peak resident memory
            of a process with a prompt of n tokens and a short continuation
    depth   tokens in each sequence before the test
    busy    other processes that compute at the same time
    """

    __test__ = False  # hides the class from pytest

    kind: str
    n: int
    depth: int = 0
    n_seqs: int = 1
    type_k: str = "f16"
    type_v: str = "f16"
    busy: int = 0

    @property
    def label(self) -> str:
        names = {
            "batch": f"{self.n_seqs} x tg{self.n}",
            "at once": f"{self.n} at once",
            "first": f"first token, cold, pp{self.n}",
            "warm": f"first token, warm, pp{self.n}",
            "new": f"first token, new context, pp{self.n}",
            "memory": f"peak memory, pp{self.n}",
        }
        text = names.get(self.kind, f"{self.kind}{self.n}")
        if self.depth:
            text += f" @ d{self.depth}"
        if (self.type_k, self.type_v) != ("f16", "f16"):
            text += f", {self.type_k}/{self.type_v}"
        if self.busy:
            text += f", {self.busy} busy"
        return text

    @property
    def is_rate(self) -> bool:
        """True if the result is printed in tokens/s."""
        return self.kind not in (*COLD, "warm", "new")

    @property
    def tokens(self) -> int:
        """Number of tokens in a run."""
        return self.n * self.n_seqs * (REPEATED if self.kind == "at once" else 1)

    @property
    def cells(self) -> int:
        """Number of cache cells that a sequence needs."""
        more = {"at once": self.n * REPEATED, "memory": self.n + REPEATED}
        return self.depth + more.get(self.kind, self.n)

    @property
    def context(self) -> tuple[object, ...]:
        """Tests that agree in this are run in one context."""
        own = (self.kind,) if self.kind in COLD else ()
        return self.depth, self.n_seqs, self.type_k, self.type_v, *own


def matrix(depths: tuple[int, int] = (4096, 16384)) -> list[Test]:
    """Return the complete comparison of one model, with long tests last."""
    near, far = depths
    return [
        Test("pp", 512),
        Test("tg", 128),
        *(Test("at once", n) for n in (1, 2, 4, 8)),
        Test("batch", 64, n_seqs=8),
        Test("tg", 32, near),
        Test("tg", 32, far),
        Test("pp", 512, far),
    ]


def chosen(
    prompt: Iterable[int],
    gen: Iterable[int],
    depths: Iterable[int],
    sequences: Iterable[int],
    n_batched: int,
    at_once: Iterable[int],
) -> Iterator[Test]:
    """Yield tests by their numbers; 0 disables a test."""
    kinds = [("pp", n) for n in prompt if n] + [("tg", n) for n in gen if n]
    for depth in depths:
        yield from (Test(kind, n, depth) for kind, n in kinds)
        yield from (Test("at once", n, depth) for n in at_once if n)
        yield from (Test("batch", n_batched, depth, n_seqs=n) for n in sequences if n)


def with_types(tests: Iterable[Test], types_k: Iterable[str], types_v: Iterable[str]) -> list[Test]:
    """Return each test with every combination of cache types."""
    pairs = list(product(types_k, types_v))
    return [replace(t, type_k=k, type_v=v) for t in tests for k, v in pairs]


def with_neighbours(tests: Iterable[Test], numbers: Iterable[int]) -> list[Test]:
    """Return each test with each number of busy processes; cold tests run without them."""
    every = list(numbers)
    return [replace(t, busy=n) for t in tests for n in (every if t.kind not in COLD else [0])]


def groups(tests: Iterable[Test]) -> list[list[Test]]:
    """Return groups of tests that share a context, in order of their first test."""
    found: dict[tuple[object, ...], list[Test]] = {}
    for test in tests:
        found.setdefault(test.context, []).append(test)
    return list(found.values())
