"""Markdown tables of benchmark records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from dev.compare.speed.peer import OURS
from dev.compare.speed.results import Record, mean_ratio


def columns(records: Iterable[Record]) -> list[str]:
    """Return the names of the engines that ran, llama-py first."""
    names = dict.fromkeys(name for r in records for name in r.runs)
    return [*(n for n in names if n == OURS), *(n for n in names if n != OURS)]


class Table:
    """Markdown table that can be printed line by line."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        titles = ["threads", f"{'test':>32}", *(f"{n:>10}" for n in names), "ours / best"]
        self.widths = [len(title) for title in titles]
        rule = [f"{'-' * (width - 1)}:" for width in self.widths]
        self.head = [self._line(titles), self._line(rule)]

    def row(self, r: Record) -> str:
        ratio = "-" if r.ratio is None else f"{r.ratio:.3f}"
        values = [self._value(r, name) for name in self.names]
        return self._line([str(r.threads), r.test.label, *values, ratio])

    def _value(self, r: Record, name: str) -> str:
        """Return a table cell: tokens/s without a unit, MiB, or ms."""
        value = r.value(name)
        if value is None:
            return "-"
        if r.test.is_rate:
            return f"{value:.2f}"
        return f"{value / 2**20:.0f} MiB" if r.test.kind == "memory" else f"{value * 1e3:.1f} ms"

    def _line(self, cells: Sequence[str]) -> str:
        padded = (cell.rjust(width) for cell, width in zip(cells, self.widths, strict=True))
        return f"| {' | '.join(padded)} |"


def notes(records: Sequence[Record]) -> list[str]:
    """Return notes on the mean ratio, small batches, memory and missing engines."""
    mean = mean_ratio(records)
    found = [] if mean is None else [f"geometric mean of ours / best: {mean:.3f}"]
    found += [
        line
        for threads in sorted({r.threads for r in records})
        for line in batch_costs([r for r in records if r.threads == threads])
    ]
    found += kept_beside(records)
    for r in records:
        if r.test.kind == "memory" and r.floor:
            values = {name: r.value(name) for name in r.runs}
            parts = ", ".join(
                f"{name} {value / r.floor:.2f}" for name, value in values.items() if value
            )
            size = f"{r.floor / 2**20:.0f} MiB"
            found.append(f"{r.test.label} against file and caches ({size}): {parts}")
    left_out: dict[str, dict[str, None]] = {}
    for r in records:
        for why in r.left_out.values():
            left_out.setdefault(why, {})[r.test.label] = None
    return found + [f"left out of {'; '.join(of)}: {why}" for why, of in left_out.items()]


def batch_costs(records: Sequence[Record]) -> list[str]:
    """Return the cost of decoding several tokens in a batch, relative to one token."""
    small = {r.test: r for r in records if r.test.kind == "at once"}
    lines = []
    for test, r in small.items():
        one = next((o for t, o in small.items() if t.n == 1 and t.context == test.context), None)
        if test.n == 1 or one is None:
            continue
        costs = []
        for name in r.runs:
            many, single = r.value(name), one.value(name)
            if many and single:
                costs.append(f"{name} {test.n * single / many:.2f}")
        lines.append(f"{test.label} against 1 (-t {r.threads}): {', '.join(costs)}")
    return lines


def kept_beside(records: Sequence[Record]) -> Iterator[str]:
    """Yield the share of its speed that each engine keeps under background load."""
    alone = {r.key: r for r in records if not r.test.busy}
    for r in records:
        quiet = alone.get((r.model, r.threads, replace(r.test, busy=0)))
        if not r.test.busy or quiet is None:
            continue
        pairs = {name: (r.value(name), quiet.value(name)) for name in r.runs}
        kept = ", ".join(f"{name} {a / b:.2f}" for name, (a, b) in pairs.items() if a and b)
        yield f"{r.model}, {r.test.label} against none (-t {r.threads}): {kept}"


BEGIN, END = "<!-- made by compare_speed.py -->", "<!-- end -->"
_TITLE = "![Ratio of each test]"
OVERVIEW = "<!-- overview by compare_speed.py -->"  # a page with this marker has no table per model
NEW = f"""# Measured speed

Made by `dev/compare/compare_speed.py`: tokens per second, medians of runs that alternate within \
each test. A ratio above 1 means that llama-py is faster, or needs less memory.

{BEGIN}
{END}
"""


def page(records: Sequence[Record], plot: str = "") -> str:
    """Return a page with an overview, and one table per model; `plot` is its picture's name."""
    return renewed(NEW, records, plot)


def renewed(text: str, records: Sequence[Record], plot: str = "") -> str:
    """Return the page with a new section; the text around the section is unchanged."""
    mark = OVERVIEW if OVERVIEW in text else BEGIN
    before, begin, rest = text.partition(mark)
    _, end, after = rest.partition(END)
    if not end:
        return page(records, plot)
    if mark == OVERVIEW:
        lines = ["", *overview(records), "", *rates(records), *_picture(plot)]
    else:
        lines = section(records, plot)
    return "\n".join([before + begin, *lines, "", end + after])


def section(records: Sequence[Record], plot: str) -> list[str]:
    """Return the lines of all tables, after the picture."""
    lines = _picture(plot)
    models = list(dict.fromkeys(r.model for r in records))
    if len(models) > 1 and mean_ratio(records) is not None:
        lines += ["", "## Overview", "", *overview(records)]
    for model in models:
        own = [r for r in records if r.model == model]
        table = Table(columns(own))
        processors = ", ".join(dict.fromkeys(r.cpu for r in own))
        lines += ["", f"## {model}", "", f"On {processors}.", "", *table.head]
        lines += map(table.row, own)
        lines += ["", *(f"* {note}" for note in notes(own))]
    return lines


def has_picture(text: str) -> bool:
    """Return True unless the page has a section without a picture."""
    return END not in text or _TITLE in text


def _picture(plot: str) -> list[str]:
    return ["", f"{_TITLE}({plot})"] if plot else []


def overview(records: Sequence[Record]) -> list[str]:
    """Return ratios of our speed to the best engine's per model; rare tests are omitted."""
    found = {(r.model, r.test, r.threads): r.ratio for r in records if r.test.is_rate and r.ratio}
    models = list(dict.fromkeys(model for model, _, _ in found))
    threads = sorted({n for _, _, n in found}, reverse=True)
    having = {t: {model for model, test, _ in found if test == t} for _, t, _ in found}
    tests = [test for test, those in having.items() if 2 * len(those) > len(models)]
    of = ", ".join(map(str, threads))
    ratios = list(found.values())
    lines = [
        f"Ratio to the best engine with {of} threads. {len(ratios)} tests: smallest ratio"
        f" {min(ratios):.3f}, geometric mean {mean_ratio(records):.2f}.",
        "",
        f"| model | {' | '.join(test.label for test in tests)} |",
        f"|---|{'---:|' * len(tests)}",
    ]
    for model in models:
        cells = (", ".join(_ratio(found.get((model, test, n))) for n in threads) for test in tests)
        lines.append(f"| {model.removesuffix('.gguf')} | {' | '.join(cells)} |")
    return lines


def rates(records: Sequence[Record]) -> list[str]:
    """Return tokens/s of llama-py and of the best engine per model, with the most threads."""
    threads = max(r.threads for r in records)
    own = [r for r in records if r.test.is_rate and r.ratio and r.threads == threads]
    models = list(dict.fromkeys(r.model for r in own))
    found = {(r.model, r.test): r for r in own}
    having = {t: {model for model, test in found if test == t} for _, t in found}
    tests = [test for test, those in having.items() if 2 * len(those) > len(models)]
    lines = [
        f"Tokens/s with {threads} threads, in brackets the best engine's.",
        "",
        f"| model | {' | '.join(test.label for test in tests)} |",
        f"|---|{'---:|' * len(tests)}",
    ]
    for model in models:
        cells = (_rate(found.get((model, test))) for test in tests)
        lines.append(f"| {model.removesuffix('.gguf')} | {' | '.join(cells)} |")
    return lines


def _rate(r: Record | None) -> str:
    value = r and r.value(OURS)
    if r is None or value is None or r.ratio is None:
        return "-"
    digits = 0 if value >= 100 else 1
    return f"{value:.{digits}f} ({value / r.ratio:.{digits}f})"


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"
