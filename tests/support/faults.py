"""Kernels that are wrong for one node of a model, or in one step."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from ggml_cpu.fused import fusions
from ggml_cpu.kernel import REGISTRY, Kernel
from ggml_cpu.table import table
from ggml_py.backend import registry
from ggml_py.fusion.pattern import Pattern
from ggml_py.tensor import Tensor


def plant(monkeypatch: pytest.MonkeyPatch, op: str, kernel: str, node: str) -> None:
    """From now on the CPU computes a node by another op's kernel."""
    find, wrong = table().find, REGISTRY.kernels[kernel]

    def found(t: Tensor) -> Kernel | None:
        return wrong if (t.op, t.name) == (op, node) else find(t)

    monkeypatch.setattr(table(), "find", found)


def plant_in_step(monkeypatch: pytest.MonkeyPatch, pattern: Pattern, node: str) -> None:
    """From now on the CPU's step for a pattern that gives this node has another parameter."""
    known = fusions().rules
    (i,) = (i for i, rule in enumerate(known) if rule.pattern is pattern)
    rule = known[i]

    def launch(match: Any) -> Any:
        steps = rule.launcher(match)
        if match.result.name != node:
            return steps
        return [replace(s, op_params=struct.pack("<f", 0.5) + s.params()[4:]) for s in steps]

    rules = [*known[:i], replace(rule, launcher=launch), *known[i + 1 :]]
    monkeypatch.setattr(fusions(), "rules", rules)


def install(monkeypatch: pytest.MonkeyPatch, name: str, device: Any) -> None:
    """From now on there is a backend with this device."""
    names, devices = registry._entry_points(), registry.devices
    known = {**names, name: names["ref"]}
    monkeypatch.setattr(registry, "_entry_points", lambda: known)
    monkeypatch.setattr(registry, "devices", lambda n: (device,) if n == name else devices(n))
