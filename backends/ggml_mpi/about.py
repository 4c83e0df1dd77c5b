"""Descriptions of a rank: values that must be equal on all ranks, and texts to show."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ggml_py.backend import Device, HasTarget
from ggml_py.errors import BackendError
from ggml_py.machine.release import VERSION

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass(frozen=True, slots=True)
class RankAbout:
    """target   the kind of CPU that kernels are compiled for, the same on all ranks"""

    target: str
    host: str
    description: str


def about(device: Device) -> RankAbout:
    """Return this rank's description of its machine."""
    target = device.target if isinstance(device, HasTarget) else ""
    return RankAbout(target, platform.node(), device.description)


def gather_hosts(comm: MPI.Intracomm) -> list[str]:
    """Return the names of all ranks' machines. Every rank must call it.

    BackendError in all ranks, if one has another version of the program: an order would be
    something else there.
    """
    found = comm.allgather((platform.node(), VERSION, code()))
    first = found[0]
    for rank, other in enumerate(found):
        for what, a, b in zip(("version", "code"), first[1:], other[1:], strict=True):
            if a != b:
                raise BackendError(
                    f"rank {rank} on {other[0]} has a different {what} of llama-py than rank 0 "
                    f"({b[:60]}, expected {a[:60]}); install the same version on all ranks"
                )
    return [host for host, *_ in found]


def code() -> str:
    """Return a hash of the sources that plan and compute."""
    found = hashlib.sha256()
    for name in ("ggml_py", "ggml_cpu", "ggml_mpi"):
        for path in sorted(Path(str(import_module(name).__file__)).parent.rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()
