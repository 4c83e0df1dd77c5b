"""Aliases of moved modules: importing a former name returns the new module."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def places(table: str) -> dict[str, str]:
    """Return new module paths by former paths. Each line of the table has a room and its modules:
    `name` or `former:name`."""
    found = {}
    for room, *modules in map(str.split, table.strip().splitlines()):
        for former, _, name in (module.partition(":") for module in modules):
            found[former] = f"{room}.{name or former}"
    return found


# Paths that code outside relies on, without a warning. ggml_cpu/target.py imports host from here:
# its text is a part of the keys of kernels.
STABLE = places("""
    backend kernels null registry
    inspection dump
    machine host
    plan alloc sched
""")
# Former names of modules, kept for one release with a warning.
MOVED = {"backward": "gradients", "buffer": "tensor"} | places("""
    backend host_memory indices planned
    fusion chain match pattern uses
    inspection check judge
    machine building digest environment extras folder garbage shield
    ops traffic
    plan arena assign collective crew order pipeline split taps waves
""")


class Finder:
    """Import hook for moved modules of a package; it warns unless a module is in `stable`.

    moved  new paths by former paths, within the package; submodules move with their package
    """

    def __init__(
        self, package: str, moved: Mapping[str, str], stable: Collection[str] = ()
    ) -> None:
        self.package, self.moved, self.stable = package, moved, stable

    def new_place(self, name: str) -> str | None:
        """Return the present module of a former `name`; None if it has not moved."""
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
            warnings.warn(f"{name} is deprecated; import {new}", DeprecationWarning, stacklevel=2)
        sys.modules[name] = import_module(new)
