#!/usr/bin/env python3
"""Fuzz input files: the engine must reject or run each file (dev/torture/fuzz/README.md).

python -m dev.torture.fuzz_files                          # list the kinds of files
python -m dev.torture.fuzz_files gguf --count 1000        # cases 0 to 999 of seed 1
python -m dev.torture.fuzz_files gguf --seed 1 --case 17  # one case in this process, with traceback
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path


def main(argv: list[str] | None = None) -> int:
    """Run fuzz cases; return 0 without findings, 1 with findings, 2 for wrong usage."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["--worker"]:
        from dev.torture.fuzz.worker import work

        work(argv[1], *map(int, argv[2:]))
        return 0
    from dev.torture.fuzz.kind import find, names

    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("kind", nargs="*", help=", ".join(names()))
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--start", type=int, default=0, help="number of the first case")
    p.add_argument("--count", type=int, default=1000)
    p.add_argument("--seconds", type=float, default=math.inf, help="at most")
    p.add_argument("--arch", default="", help="architectures of model files, separated by commas")
    p.add_argument("--case", type=int, help="run only this case, in this process")
    p.add_argument("--keep", type=Path, metavar="DIR", help="with --case: write its files to DIR")
    args = p.parse_args(argv)
    if not args.kind:
        print("\n".join(f"{name:10} {find(name).__doc__}" for name in names()))
        return 0
    for name in args.kind:
        if name not in names():
            p.error(f"unknown kind {name!r}; known: {', '.join(names())}")
    os.environ["LLAMA_PY_FUZZ_ARCHS"] = args.arch
    if args.case is not None:
        return one(args.kind[0], args.seed, args.case, args.keep)
    return max([many(name, args) for name in args.kind])


def one(name: str, seed: int, number: int, keep: Path | None) -> int:
    """Run a single case, without a limit on time and memory."""
    from dev.torture.fuzz.judge import judge
    from dev.torture.fuzz.kind import find, numbered

    with tempfile.TemporaryDirectory() as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        case = numbered(find(name)(folder), seed, number)
        print(f"{name} {seed} {number}: {case.words}")
        verdict = judge(case)
        print(f"{verdict.kind}: {verdict.text}")
    return int(verdict.kind == "found")


def many(name: str, args: argparse.Namespace) -> int:
    from dev.torture.fuzz.run import run

    totals = run(name, args.seed, args.start, args.start + args.count, args.seconds)
    places = Counter(f.where for f in totals.findings)
    for where, n in places.most_common():
        found = next(f for f in totals.findings if f.where == where)
        numbers = [f.number for f in totals.findings if f.where == where][:8]
        print(
            f"--- {n} x {where}: --seed {args.seed} --case {numbers}\n{found.words}\n{found.text}"
        )
    speed = totals.n / max(totals.seconds, 1e-9)
    print(
        f"{name}: {totals.n} cases, {totals.kinds['ran']} ran, {totals.kinds['refused']} refused,"
        f" {totals.kinds['found']} findings in {len(places)} places; {speed:.0f} cases a second"
    )
    return int(bool(totals.findings))


if __name__ == "__main__":
    sys.exit(main())
