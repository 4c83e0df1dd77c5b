"""Modules at their former places: importing one gives the new module."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

STABLE = {  # within ggml_py; paths that code outside relies on, without a warning
    "alloc": "plan.alloc",
    "dump": "inspection.dump",
    "host": "machine.host",  # ggml_cpu/target.py: its text is a part of the keys of kernels
    "kernels": "backend.kernels",
    "null": "backend.null",
    "registry": "backend.registry",
    "sched": "plan.sched",
}
MOVED = {  # within ggml_py; for one release, with a warning
    "arena": "plan.arena",
    "assign": "plan.assign",
    "backward": "gradients",
    "buffer": "tensor",
    "building": "machine.building",
    "chain": "fusion.chain",
    "check": "inspection.check",
    "collective": "plan.collective",
    "crew": "plan.crew",
    "digest": "machine.digest",
    "environment": "machine.environment",
    "extras": "machine.extras",
    "folder": "machine.folder",
    "garbage": "machine.garbage",
    "host_memory": "backend.host_memory",
    "indices": "backend.indices",
    "judge": "inspection.judge",
    "match": "fusion.match",
    "order": "plan.order",
    "pattern": "fusion.pattern",
    "pipeline": "plan.pipeline",
    "planned": "backend.planned",
    "shield": "machine.shield",
    "split": "plan.split",
    "taps": "plan.taps",
    "traffic": "ops.traffic",
    "uses": "fusion.uses",
    "waves": "plan.waves",
}


class Finder:
    """Finds moved modules of a package for `import`, and warns of those that are not `stable`.

    moved  new places by former ones, within the package; a package takes its modules along
    """

    def __init__(
        self, package: str, moved: Mapping[str, str], stable: Collection[str] = ()
    ) -> None:
        self.package, self.moved, self.stable = package, moved, stable

    def new_place(self, name: str) -> str | None:
        """The module that `name` is today; None for one that has not moved."""
        package, _, rest = name.partition(".")
        if package != self.package:
            return None
        parts = rest.split(".")
        for n in range(len(parts), 0, -1):
            new = self.moved.get(".".join(parts[:n]))
            if new is not None:
                return ".".join([package, new, *parts[n:]])
        return None

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return None if self.new_place(name) is None else ModuleSpec(name, self)  # type: ignore[arg-type]  # by its methods

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        new = self.new_place(name)
        assert new is not None
        if name.partition(".")[2] not in self.stable:
            warnings.warn(f"{name} has moved; import {new}", DeprecationWarning, stacklevel=2)
        sys.modules[name] = import_module(new)
