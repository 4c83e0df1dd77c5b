"""Aliases of moved modules and renamed attributes, for one release; each use warns.

Importing a former module returns the new module. A module with renamed classes or functions has

    if not TYPE_CHECKING:
        __getattr__ = former_names(__name__, Loaded="LoadedModel")

and a class with renamed methods or properties has `see = Former("build_image_prompt")`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Mapping
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
    plan arena assign collective crew:device_threads order pipeline split taps waves
""")


class Finder:
    """Import hook for moved modules of a package; it warns unless a module is in `stable`.

    moved  new paths by former paths, within the package; submodules move with their package
    """

    def __init__(
        self, package: str, moved: Mapping[str, str], stable: Collection[str] = ()
    ) -> None:
        self.package, self.moved, self.stable = package, moved, stable
        self._heads = {former.partition(".")[0] for former in moved}

    def new_place(self, name: str) -> str | None:
        """Return the present module of a former `name`; None if it has not moved."""
        package, _, rest = name.partition(".")
        if package != self.package or rest.partition(".")[0] not in self._heads:
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


def former_names(module: str, **names: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module: present names of its attributes by former names."""

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        message = f"{module}.{name} is deprecated; use {names[name]}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(sys.modules[module], names[name])

    return find


class Former:
    """Former name of a method, property or attribute of a class.

    name    present name
    former  the name that this has in its class
    """

    former = ""

    def __init__(self, name: str) -> None:
        self.name = name

    def __set_name__(self, owner: type, former: str) -> None:
        self.former = former

    def __get__(self, obj: object, owner: type) -> Any:
        self.warn(owner)
        return getattr(owner if obj is None else obj, self.name)

    def __set__(self, obj: object, value: object) -> None:
        self.warn(type(obj))
        setattr(obj, self.name, value)

    def warn(self, owner: type, stacklevel: int = 3) -> None:
        """Warn of a use of the former name in a class."""
        message = f"{owner.__name__}.{self.former} is deprecated; use {self.name}"
        warnings.warn(message, DeprecationWarning, stacklevel=stacklevel)


def adopt(cls: type) -> None:
    """Give methods that a subclass defines by former names their present names, with a warning."""
    former = {n: f for base in cls.__mro__[1:] for n, f in vars(base).items() if type(f) is Former}
    for name in former.keys() & vars(cls).keys():
        former[name].warn(cls, stacklevel=4)
        setattr(cls, former[name].name, vars(cls)[name])
