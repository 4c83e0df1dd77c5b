"""What this machine has, as far as this process may use it: cores and memory, less what an affinity
mask and the limits of a container (cgroup) take away; and instructions that LLVM does not tell."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

CPUS = Path("/sys/devices/system/cpu")
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
MEMINFO = Path("/proc/meminfo")

AT_HWCAP, AT_HWCAP2 = 16, 26


class Asked(NamedTuple):
    """How a feature is asked for: Linux (getauxval's argument, bit), the last part of a name of
    macOS, a number of Windows (winnt.h: PF_ARM_...)."""

    linux: tuple[int, int]
    macos: str
    windows: int


# By LLVM's names: of the ARM features that kernels use, those that its own list of the host omits.
ARM_FEATURES = {
    "dotprod": Asked((AT_HWCAP, 20), "FEAT_DotProd", 43),
    "i8mm": Asked((AT_HWCAP2, 13), "FEAT_I8MM", 66),
    "bf16": Asked((AT_HWCAP2, 14), "FEAT_BF16", 68),
}


def logical_cpus() -> list[int]:
    """Numbers of the CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def physical_cores() -> int:
    """Cores behind these CPUs: those that share one count once."""
    cpus = logical_cpus()
    shared = [_text(CPUS / f"cpu{n}" / "topology" / "thread_siblings_list") for n in cpus]
    if all(shared):
        return len(set(shared))
    if sys.platform == "linux":
        return len(cpus)
    import psutil

    return min(len(cpus), psutil.cpu_count(logical=False) or len(cpus))


def cpu_quota() -> float | None:
    """CPUs' worth of time that the container may use; None without a limit."""
    quotas = []
    for folder in _folders("cpu"):
        limit, _, period = (_text(folder / "cpu.max") or "").partition(" ")
        if not limit:
            limit = _text(folder / "cpu.cfs_quota_us")
            period = _text(folder / "cpu.cfs_period_us")
        if limit.isdigit() and period.isdigit() and int(period):
            quotas.append(int(limit) / int(period))
    return min(quotas, default=None)


@cache
def default_threads() -> int:
    """One a physical core, but no more than the quota: threads wait for each other, so one that is
    held back holds back all."""
    quota = cpu_quota()
    cores = physical_cores()
    return cores if quota is None else max(1, min(cores, int(quota)))


def memory() -> tuple[int, int]:
    """(available, total) bytes: available is also what the OS would take back from its caches."""
    available, total = _whole_memory()
    for folder in _folders("memory"):
        limit = _number(folder, "memory.max", "memory.limit_in_bytes")
        if limit is None or limit >= total:
            continue
        used = _number(folder, "memory.current", "memory.usage_in_bytes") or 0
        available = min(available, max(0, limit - used + _file_cache(folder)))
        total = limit
    return available, total


def _whole_memory() -> tuple[int, int]:
    """Of the machine; where there is /proc, psutil need not be loaded."""
    fields = dict(line.split(":", 1) for line in _text(MEMINFO).splitlines() if ":" in line)
    if "MemAvailable" in fields:
        available, total = (1024 * int(fields[k].split()[0]) for k in ("MemAvailable", "MemTotal"))
        return available, total
    import psutil

    found = psutil.virtual_memory()
    return int(found.available), int(found.total)


def arm_features() -> set[str]:
    """Those of ARM_FEATURES that this processor, which is an ARM one, has and the system allows."""
    return {name for name, asked in ARM_FEATURES.items() if _allows(asked)}


def _allows(asked: Asked) -> bool:
    if sys.platform == "linux":
        kind, bit = asked.linux
        return bool(_auxiliary(kind) >> bit & 1)
    if sys.platform == "darwin":
        return _sysctl(f"hw.optional.arm.{asked.macos}") == 1
    return sys.platform == "win32" and _processor_has(asked.windows)


def _auxiliary(kind: int) -> int:
    """What the kernel told this process when it began; 0 for what it did not tell."""
    function = ctypes.CDLL(None).getauxval
    function.restype, function.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    return int(function(kind))


def _sysctl(name: str) -> int:
    """A number that macOS knows by name; 0 for an unknown one."""
    value, size = ctypes.c_int32(0), ctypes.c_size_t(4)
    found = ctypes.CDLL(None).sysctlbyname(
        name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)
    )
    return 0 if found else value.value


def _processor_has(number: int) -> bool:
    return bool(ctypes.CDLL("kernel32").IsProcessorFeaturePresent(number))


def description() -> str:
    """`8 cores (16 CPUs), quota of 4.0 CPUs`"""
    cores, cpus, quota = physical_cores(), len(logical_cpus()), cpu_quota()
    text = f"{cores} {'core' if cores == 1 else 'cores'}"
    text += f" ({cpus} CPUs)" if cpus != cores else ""
    return text if quota is None else f"{text}, quota of {quota:.1f} CPUs"


def _folders(controller: str) -> Iterator[Path]:
    """Where the limits of this process's group and those around it stand, of cgroup v2 and v1."""
    for line in _text(OWN_CGROUP).splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root = CGROUPS
        elif controller in controllers.split(","):
            root = CGROUPS / controller
        else:
            continue
        own = Path(path.lstrip("/"))
        for part in (own, *own.parents):
            yield root / part


def _file_cache(folder: Path) -> int:
    """Of what a group uses, files that were not touched lately."""
    lines = _text(folder / "memory.stat").splitlines()
    found = dict(line.split(" ", 1) for line in lines if " " in line)
    return int(found.get("total_inactive_file", found.get("inactive_file", "0")))


def _number(folder: Path, *names: str) -> int | None:
    for name in names:
        text = _text(folder / name)
        if text.isdigit():
            return int(text)
    return None


def _text(path: Path) -> str:
    """What a small file says; "" where there is none."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
