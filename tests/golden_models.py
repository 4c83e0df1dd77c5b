"""The tiny models of which there is data of the real llama.cpp: tests/data/README.md."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from golden import store
from golden.engines import Ours
from golden.runs import Case
from llama_py.models import tiny

CASES = store.recorded()
NAMES = [f"{arch}-{variant}" for arch, variant in CASES]
_FOLDER = tempfile.TemporaryDirectory(prefix="llama-py-tiny-")


def split(name: str) -> tuple[str, str]:
    """Of a name, the architecture and the variant."""
    arch, _, variant = name.rpartition("-")
    return arch, variant


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
    opened = lambda **how: Ours(path_of(name), device, **how, **options)  # noqa: E731
    return Case(tiny.find(arch, variant), facts, opened)


def gold(name: str, run: str) -> dict[str, Any]:
    """The arrays that llama.cpp gave in a run."""
    found = store.values(*split(name))
    return {key[len(run) + 1 :]: a for key, a in found.items() if key.startswith(f"{run}.")}


def uses(name: str, *ops: str) -> bool:
    """Whether a model's graph has one of these ops."""
    lists = store.nodes(*split(name)).values()
    return any(node["op"] in ops for nodes in lists for node in nodes)


def causal(name: str) -> bool:
    """Whether tokens see only those before them, so that a text may come in pieces."""
    return bool(tiny.find(*split(name)).keys.get("attention.causal", True))
