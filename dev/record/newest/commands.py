"""The commands of the program."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from dev import tiny_models as tiny
from dev.compare import judge_architectures
from dev.record import record_golden
from dev.record.golden import judge as judging
from dev.record.golden import runs, store
from dev.record.newest.engine import Newest
from ggml_py.inspection.dump import diff


def record(arch: str, folder: Path) -> None:
    """Record an architecture's models that are for this build."""
    for variant in variants(arch):
        if not tiny.find(arch, variant).newest:
            continue
        path = tiny.write(arch, variant, folder)
        print(f"{arch} {variant}: {path.stat().st_size} bytes", flush=True)
        record_golden.record(arch, variant, path, Newest)


def check(arch: str, folder: Path) -> None:
    """Compare recorded results, such as of the reference, with this build's."""
    for variant in variants(arch):
        about = store.about(arch, variant)
        path = tiny.write(arch, variant, folder)
        case = record_golden.case_of(arch, variant, path, about.facts, Newest)
        for run in about.runs:
            found = runs.RUNS[run](case)
            if found.nodes:
                expected = store.nodes(arch, variant)[run]
                differs = diff(found.nodes, expected)
                said = differs or f"{len(expected)} nodes are the same"
            else:
                stored = store.values(arch, variant)
                said = ", ".join(
                    f"{key} {distance(stored[f'{run}.{key}'], x):.1e}"
                    for key, x in found.values.items()
                )
            print(f"{arch} {variant} {run}: {said}", flush=True)


def judge(arch: str, folder: Path) -> None:
    """Write the architecture's row of docs/judged.md."""
    results = json.loads(judge_architectures.DATA.read_text(encoding="utf-8"))
    results[arch] = {
        variant: judging.stored(judging.judge(arch, variant, engine=Newest))
        for variant in variants(arch)
    }
    judge_architectures.write(results)
    print(f"{arch}: {results[arch]}", flush=True)


def variants(arch: str) -> list[str]:
    return [variant for name, variant in tiny.every() if name == arch]


def distance(expected: np.ndarray, found: np.ndarray) -> float:
    """Return the normalized mean squared error."""
    a, b = expected.astype(np.float64), found.astype(np.float64)
    return float(np.square(a - b).sum() / np.square(a).sum())
