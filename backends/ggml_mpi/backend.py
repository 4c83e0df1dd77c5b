"""Entry point: the devices mpi0, mpi1, ... of a program that a launcher started several times."""

from __future__ import annotations

from functools import partial
from typing import Any

from ggml_mpi.about import RankAbout, about
from ggml_mpi.absent import absent as absent
from ggml_mpi.all_reduce import AcrossRanks
from ggml_mpi.device import RankDevice
from ggml_mpi.plan import RankPlan
from ggml_mpi.worker import local_device
from ggml_mpi.world import n_started, world
from ggml_py.backend import Device
from ggml_py.errors import BackendError


def devices() -> list[Device]:
    """Return the CPUs of all ranks, this one as mpi0; an empty list for a single rank."""
    if n_started() < 2:
        return []
    at = world()
    if at.rank:
        raise BackendError(f"rank {at.rank} computes for rank 0; only rank 0 can list the devices")
    cpu: Any = local_device(at)
    here = cpu.reopen("mpi0")
    here.kind = RankDevice.kind
    here.set_threads(cpu.n_threads)
    all_reduce = AcrossRanks(at, here)
    plan = partial(RankPlan, at)
    others = [RankDevice(at, rank, cpu, all_reduce, plan) for rank in range(1, at.size)]
    for other in others:
        _compare(about(cpu), other)
    return [here, *others]


def _compare(own: RankAbout, other: RankDevice) -> None:
    """Raise BackendError for a rank that would compute otherwise."""
    theirs: RankAbout = other.about
    if own.target != theirs.target:
        raise BackendError(
            f"rank {other.rank} on {theirs.host} has a different CPU than rank 0 "
            f"({theirs.target[:60]}, expected {own.target[:60]}); set LLAMA_PY_CPU to an "
            "instruction set that all ranks support"
        )
