"""Engines that the speed comparison can run: one per module of `peers`."""

from __future__ import annotations

import argparse
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any

from dev.compare.speed import peers

OURS = "ours"


@dataclass(frozen=True)
class Peer:
    """One compared engine, and the command that starts it.

    file    the module in `peers` that defines the engine, `Loaded`
    python  the Python interpreter with the engine's packages, or the command that starts it
    how     arguments of `Loaded` in addition to model and threads
    """

    name: str
    file: str
    python: str | Sequence[str]
    how: Mapping[str, Any] = field(default_factory=dict)


def modules() -> Iterator[ModuleType]:
    """Yield the modules of `peers`; only their engines import the compared library."""
    for found in pkgutil.iter_modules(peers.__path__):
        if not found.name.startswith("_"):
            yield import_module(f"dev.compare.speed.peers.{found.name}")


def add_options(p: argparse.ArgumentParser) -> None:
    """Add each module's option; its OPTION has the flag, and the arguments for argparse."""
    for module in modules():
        if module.OPTION:
            flag, how = module.OPTION
            p.add_argument(flag, dest=module.__name__, **how)


def asked(args: argparse.Namespace) -> list[Peer]:
    """Return our engine first, then the engines that the options select."""
    found = []
    for module in modules():
        value = getattr(args, module.__name__, True)
        if value:
            file = module.__name__.rpartition(".")[2]
            found += [Peer(name, file, *how) for name, *how in module.started(value)]
    return sorted(found, key=lambda peer: peer.name != OURS)
