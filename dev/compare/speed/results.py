"""Results as JSON lines, so that a table can combine several runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from dev.compare.speed.peer import OURS
from dev.compare.speed.test import Test

Key = tuple[str, int, Test]  # model, threads, test


@dataclass(frozen=True)
class Record:
    """All runs of one test.

    model     the file's name; cpu: the processor's name
    runs      by peer: seconds, or bytes for "memory"
    left_out  by peer: the reason for missing results
    floor     bytes of the file and of the context's caches; 0: unknown
    """

    model: str
    cpu: str
    threads: int
    test: Test
    runs: Mapping[str, list[float]]
    left_out: Mapping[str, str] = field(default_factory=dict)
    floor: int = 0

    @property
    def key(self) -> Key:
        return self.model, self.threads, self.test

    def value(self, peer: str) -> float | None:
        """Return the median in tokens/s, seconds, or bytes."""
        if not self.runs.get(peer):
            return None
        middle = median(self.runs[peer])
        return self.test.tokens / middle if self.test.is_rate else middle

    @property
    def ratio(self) -> float | None:
        """Ratio to the best peer; above 1, llama-py is faster or needs less memory."""
        values = {name: self.value(name) for name in self.runs}
        ours = values.pop(OURS, None)
        others = [v for v in values.values() if v is not None]
        if ours is None or not others:
            return None
        return ours / max(others) if self.test.is_rate else min(others) / ours

    def line(self) -> str:
        return json.dumps(asdict(self))


def read(path: Path) -> Iterator[Record]:
    """Yield the records of a file; ValueError for a damaged record."""
    for i, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        yield parsed(line, f"{path}:{i}")


def parsed(line: str, where: str) -> Record:
    """Parse one record of `line`."""
    try:
        found: dict[str, Any] = json.loads(line)
        return Record(**{**found, "test": Test(**found["test"])})
    except (ValueError, TypeError, KeyError) as e:
        raise ValueError(f"{where}: not a line of --json: {e}") from None


def merged(records: Iterable[Record]) -> list[Record]:
    """Return one record per test, with the runs of all its records."""
    found: dict[Key, Record] = {}
    for new in records:
        old = found.get(new.key)
        if old is None:
            found[new.key] = new
            continue
        names = [*old.runs, *(name for name in new.runs if name not in old.runs)]
        runs = {name: [*old.runs.get(name, []), *new.runs.get(name, [])] for name in names}
        left_out = {**old.left_out, **new.left_out}
        missing = {name: why for name, why in left_out.items() if not runs.get(name)}
        floor = new.floor or old.floor
        found[new.key] = replace(new, runs=runs, left_out=missing, floor=floor)
    return list(found.values())


def mean_ratio(records: Iterable[Record]) -> float | None:
    """Return the geometric mean over the tests with a ratio."""
    ratios = [r.ratio for r in records if r.test.is_rate and r.ratio]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
