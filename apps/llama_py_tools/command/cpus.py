"""CPUs and priority of a command's threads (like llama.cpp's)."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any

from llama_py.params.option import Params, option
from llama_py.params.rules import integers
from llama_py.params.texts import integer, parse_text
from llama_py_tools.command.logs import log

NICE = {-1: 5, 0: 0, 1: -5, 2: -10, 3: -20}  # niceness by --prio (common.cpp:set_process_priority)
PINNED = (0, 1)


def mask(text: str) -> frozenset[int]:
    """Parse a mask: `0x5` is CPUs 0 and 2."""
    bits = parse_text(lambda _: int(text, 16), text, "a hexadecimal mask of CPUs, such as ff")
    return frozenset(i for i in range(bits.bit_length()) if bits >> i & 1)


def span(text: str) -> frozenset[int]:
    """Parse a range: `2-5` is CPUs 2 to 5; `-5` is 0-5, `2-` all from 2 on."""
    first, dash, last = text.partition("-")
    if not dash:
        raise ValueError(f"expected a range of CPUs such as 0-7, got {text!r}")
    end = integer(last) if last else (os.cpu_count() or 1) - 1
    return frozenset(range(integer(first or "0"), end + 1))


class CpuParams(Params):
    """The CPUs of the threads."""

    group = "threads"

    cpu_mask: frozenset[int] = option(
        frozenset(),
        "-C --cpu-mask",
        "CPUs to run on, as a hexadecimal mask",
        parse=mask,
        metavar="M",
    )
    cpu_range: frozenset[int] = option(
        frozenset(),
        "-Cr --cpu-range",
        "CPUs to run on, as a range, in addition to --cpu-mask",
        parse=span,
        metavar="LO-HI",
    )
    cpu_strict: int = option(
        0, "--cpu-strict", "1: pin each thread to a separate CPU", choices=PINNED, parse=integer
    )
    cpu_mask_batch: frozenset[int] = option(
        frozenset(),
        "-Cb --cpu-mask-batch",
        "CPUs for prompts and batches, as a hexadecimal mask (default: --cpu-mask)",
        parse=mask,
        metavar="M",
    )
    cpu_range_batch: frozenset[int] = option(
        frozenset(),
        "-Crb --cpu-range-batch",
        "CPUs for prompts and batches, as a range, in addition to --cpu-mask-batch",
        parse=span,
        metavar="LO-HI",
    )
    cpu_strict_batch: int | None = option(
        None,
        "--cpu-strict-batch",
        "1: pin each thread to a separate CPU for prompts and batches (default: --cpu-strict)",
        choices=PINNED,
        parse=integer,
    )
    prio: int = option(
        0,
        "--prio",
        "priority of the process: low (-1), normal (0), medium (1), high (2), highest (3)",
        check=integers(-1, 3),
    )
    numa: str = option(
        "",
        "--numa",
        "threads with several NUMA nodes: on all nodes, interleaved (distribute), on the node"
        " of the start (isolate), or set by numactl (numactl)",
        choices=("distribute", "isolate", "numactl"),
    )

    @property
    def cpus(self) -> frozenset[int]:
        return self.cpu_mask | self.cpu_range

    @property
    def batch_cpus(self) -> frozenset[int]:
        return self.cpu_mask_batch | self.cpu_range_batch


def enter(p: CpuParams) -> None:
    """Move this process, before it has threads. ModelError for CPUs that it cannot have."""
    from ggml_py.machine import host

    if p.prio:
        _set_priority(p.prio)
    cpus: Collection[int] = p.cpus
    if p.numa == "isolate":
        cpus = next((node for node in _nodes() if host.current_cpu() in node), ())
    if cpus:
        host.set_affinity(_usable(cpus))


def pin(devices: Sequence[Any], p: CpuParams) -> None:
    """Pin each thread of the devices to CPUs."""
    from ggml_py.backend import SupportsBatchThreads

    one, many = places(p)
    if not one and many is None:
        return
    for device in devices:
        if isinstance(device, SupportsBatchThreads):
            device.pin(one, many)
        elif device.kind in ("ref", "null"):
            log.warning(
                "device %s has no threads to pin to CPUs, so CPU options have no effect",
                device.name,
            )


def places(p: CpuParams) -> tuple[list[Collection[int]], list[Collection[int]] | None]:
    """Return the CPUs of threads 0, 1, ... for one token, and for several (None: the same)."""
    from ggml_py.machine import host

    if p.numa == "distribute" and (nodes := _nodes()):
        return [*nodes], None
    one: list[Collection[int]] = []
    if p.cpu_strict:
        one = [[cpu] for cpu in sorted(_usable(p.cpus or host.logical_cpus()))]
    strict = p.cpu_strict if p.cpu_strict_batch is None else p.cpu_strict_batch
    if not p.batch_cpus and strict == p.cpu_strict:
        return one, None
    theirs = sorted(_usable(p.batch_cpus or p.cpus or host.logical_cpus()))
    return one, [[cpu] for cpu in theirs] if strict else [theirs]


def _nodes() -> list[list[int]]:
    from ggml_py.machine import host

    nodes = host.numa_nodes()
    if len(nodes) > 1:
        return nodes
    log.warning("--numa has no effect: this machine has one NUMA node")
    return []


def _usable(cpus: Collection[int]) -> Collection[int]:
    from ggml_py.errors import ModelError
    from ggml_py.machine import host

    if not host.has_affinity():
        raise ModelError("this system does not let programs choose their CPUs; omit -C and --cpu-*")
    there = host.usable_cpus()
    if not there & set(cpus):
        asked, own = (",".join(map(str, sorted(some))) for some in (cpus, there))
        raise ModelError(f"CPUs must be some of {own}, got {asked}")
    return there & set(cpus)


def _set_priority(prio: int) -> None:
    try:
        if hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, 0, NICE[prio])
        else:
            import psutil

            kinds = ("BELOW_NORMAL", "NORMAL", "ABOVE_NORMAL", "HIGH", "REALTIME")
            psutil.Process().nice(getattr(psutil, f"{kinds[prio + 1]}_PRIORITY_CLASS"))
    except OSError as e:
        log.warning("--prio %d: %s", prio, e.strerror)
