"""The tiny models of which there is data of the real llama.cpp: tests/data/README.md."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dev import tiny_models as tiny
from dev.record.golden import store
from dev.record.golden.engines import Ours
from dev.record.golden.runs import RUNS, Case
from tests.support.graph_models import split
from tests.support.live_models import nmse

CASES = store.recorded()
NAMES = [f"{arch}-{variant}" for arch, variant in CASES]
_FOLDER = tempfile.TemporaryDirectory(prefix="llama-py-tiny-")


@cache
def path_of(name: str) -> Path:
    """The model's file, made once a session."""
    return tiny.write(*split(name), Path(_FOLDER.name))


def runs_of(prefix: str, nodes: bool) -> list[tuple[str, str]]:
    """(model, run) of every recorded run whose name starts so."""
    return [
        (name, run)
        for name in NAMES
        for run in store.about(*split(name)).runs
        if run.startswith(prefix) and run.startswith("nodes-") == nodes
    ]


def case(name: str, device: Any = "cpu", **options: Any) -> Case:
    """The model on our engine; options of the context in addition to a run's own."""
    arch, variant = split(name)
    facts = store.about(arch, variant).facts
    found = tiny.find(arch, variant)
    target = None if found.drafts_for is None else path_of("-".join(found.drafts_for))
    options["forms"] = {**found.forms, **options.get("forms", {})}
    opened = lambda **how: Ours(path_of(name), device, target=target, **how, **options)  # noqa: E731
    return Case(found, facts, opened)


def gold(name: str, run: str) -> dict[str, Any]:
    """The arrays that llama.cpp gave in a run."""
    found = store.values(*split(name))
    return {key[len(run) + 1 :]: a for key, a in found.items() if key.startswith(f"{run}.")}


def prompt_of(name: str) -> tuple[list[int], NDArray[np.float64]]:
    """A prompt, and llama.cpp's logits of each of its tokens."""
    ids = case(name).tokens(case(name).tiny.prompt)
    return ids, gold(name, "logits")["prompt"].astype(np.float64)


def whole(name: str) -> bool:
    """Whether a model reads a text in one piece: it keeps nothing, has an encoder, or tokens see
    those after them."""
    facts = store.about(*split(name)).facts
    causal = tiny.find(*split(name)).keys.get("attention.causal", True)
    return not (facts.memory and causal) or facts.start is not None


@cache
def _ops(name: str) -> frozenset[str]:
    lists = store.nodes(*split(name)).values()
    return frozenset(node["op"] for nodes in lists for node in nodes)


def uses(name: str, *ops: str) -> bool:
    """Whether a model's graph has one of these ops."""
    return not _ops(name).isdisjoint(ops)


def compare(name: str, run: str, device: Any, bound: float, **options: Any) -> None:
    """Every array of a run, ours against llama.cpp's: whole numbers equal, floats close."""
    found, expected = RUNS[run](case(name, device, **options)).values, gold(name, run)
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        if values.dtype.kind == "i":
            assert found[key].tolist() == values.tolist()
        else:
            assert nmse(values.astype(np.float64), found[key]) <= bound, key


def exact_bound(name: str) -> float:
    """Of the NMSE where nothing is rounded; GELU is a table of F16 in llama.cpp."""
    return 1e-6 if uses(name, "GEGLU", "GELU") else 1e-9
