#!/usr/bin/env python3
"""Record llama.cpp's results for tiny models (dev/tiny_models) in tests/data/golden.

    python -m dev.record.record_golden  # all architectures
    python -m dev.record.record_golden <arch> ...  # only these; "demo" is the demo model
    python -m dev.record.record_golden <arch> --balance  # print the share of each branch
    python -m dev.record.record_golden --ik BUILD/src/libllama.so  # nodes of ik_llama.cpp

Needs llama-cpp-python: pip install '.[parity]'. For models that need a later llama.cpp
(`Tiny.newest`), use dev.record.newest.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import replace
from pathlib import Path

from dev import tiny_models as tiny
from dev.record.golden import demo, ik, runs, store
from dev.record.golden.balance import balance
from dev.record.golden.engines import LlamaCpp, target_of
from dev.record.golden.facts import facts_of

MAX_SEEDS = 40
STABLE = 2e-5  # NMSE of a row: the effect of F16 on stable tokens


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("archs", nargs="*", metavar="ARCH")
    p.add_argument("--balance", action="store_true", help="print only sizes of branches")
    p.add_argument("--ik", type=Path, metavar="LIB", help="libllama.so of a built ik_llama.cpp")
    p.add_argument("-o", "--output", type=Path, metavar="DIR", help="also write the models to DIR")
    args = p.parse_args()
    os.environ["GGML_NO_BACKTRACE"] = "1"  # print a failed assertion in one line
    unknown = set(args.archs) - {arch for arch, _ in tiny.every()} - {"demo"}
    if unknown:
        p.error(f"no dictionary in dev/tiny_models for {', '.join(sorted(unknown))}")
    if args.ik:
        record_ik(args.ik, args.archs)
        return
    if "demo" in args.archs or not (args.archs or args.balance):
        print(f"demo: recorded {demo.record()} bytes")
    with tempfile.TemporaryDirectory() as folder:
        for arch, variant in tiny.every():
            found = tiny.find(arch, variant)
            if (args.archs and arch not in args.archs) or found.unrecorded or found.newest:
                continue
            path = tiny.write(arch, variant, args.output or Path(folder))
            if (target := found.drafts_for) is not None:
                tiny.write(*target, path.parent)
            print(f"{arch} {variant}: {path.stat().st_size} bytes")
            if args.balance:
                prompt = case_of(arch, variant, path, runs.Facts()).tokens(24)
                print("\n".join(f"  {line}" for line in balance(path, prompt)))
            else:
                record(arch, variant, path)


def record_ik(library: Path, archs: list[str]) -> None:
    """Record ik_llama.cpp's node lists of architectures that store states in slots."""
    for arch, variant in ik.models():
        if archs and arch not in archs:
            continue
        with tempfile.TemporaryDirectory() as folder:
            size = ik.record(library, arch, variant, ik.write(arch, variant, Path(folder)))
        print(f"{arch} {variant}: recorded {size} bytes of ik_llama.cpp's nodes")


def case_of(
    arch: str, variant: str, path: Path, facts: runs.Facts, engine: type[LlamaCpp] = LlamaCpp
) -> runs.Case:
    found = tiny.find(arch, variant)
    target = target_of(path, found)
    return runs.Case(found, facts, lambda **how: engine(path, target=target, **how))


def record(arch: str, variant: str, path: Path, engine: type[LlamaCpp] = LlamaCpp) -> None:
    """Run one variant of an architecture, and store its results."""
    facts = facts_of(arch, path, tiny.find(arch, variant), engine)
    case = stable(case_of(arch, variant, path, facts, engine))
    names = runs.wanted(case.tiny, case.facts)
    results = {name: runs.RUNS[name](case) for name in names}
    about = store.About(store.fingerprint(path), store.recipe(arch, variant), case.facts, names)
    size = store.save(arch, variant, about, results)
    counts = ", ".join(f"{name[6:]} {len(r.nodes)}" for name, r in results.items() if r.nodes)
    print(f"  recorded {size} bytes; nodes: {counts}")


def stable(case: runs.Case) -> runs.Case:
    """Return the case with tokens that select the same experts and tokens despite rounding."""
    found = []
    for seed in range(MAX_SEEDS):
        case = replace(case, facts=replace(case.facts, seed=seed))
        found.append(runs.instability(case))
        if found[-1] <= STABLE:
            break
    else:
        seed = found.index(min(found))
        print(f"  rounding changes rows by {found[seed]:.1g} at least")
    print(f"  seed {seed}, of " + ", ".join(f"{x:.1g}" for x in found))
    return replace(case, facts=replace(case.facts, seed=seed))


if __name__ == "__main__":
    main()
