"""Cores, memory and CPU features that this process may use, within its affinity mask and the limits
of its container (cgroup).

Linux data is from files, `_auxiliary` and `_arch_prctl`; macOS data from `_sysctl`; Windows data
from `_processor_has`; all other data from psutil.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

SYSTEM = sys.platform
CPUS = Path("/sys/devices/system/cpu")
NODES = Path("/sys/devices/system/node")
CPUINFO = Path("/proc/cpuinfo")
FAST_CPUS = Path("/sys/devices/cpu_core/cpus")  # fast cores of a hybrid Intel CPU
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
MEMINFO = Path("/proc/meminfo")
STATUS = Path("/proc/self/status")

IDENTITY = ("vendor_id", "cpu family", "model", "stepping", "flags")  # fields of /proc/cpuinfo

AT_HWCAP, AT_HWCAP2 = 16, 26
SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA = 158, 0x1023, 18


class FeatureQuery(NamedTuple):
    """Query for a CPU feature: Linux (getauxval's argument, bit), last part of a macOS name, number
    of Windows (winnt.h: PF_ARM_...)."""

    linux: tuple[int, int]
    macos: str
    windows: int


# LLVM's names of ARM features that kernels use, but LLVM's list of the host omits.
ARM_FEATURES = {
    "dotprod": FeatureQuery((AT_HWCAP, 20), "FEAT_DotProd", 43),
    "i8mm": FeatureQuery((AT_HWCAP2, 13), "FEAT_I8MM", 66),
    "bf16": FeatureQuery((AT_HWCAP2, 14), "FEAT_BF16", 68),
}


def logical_cpus() -> list[int]:
    """Return the numbers of the CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    if SYSTEM == "win32":
        import psutil

        with suppress(psutil.Error, OSError):
            return sorted(psutil.Process().cpu_affinity())
    return list(range(os.cpu_count() or 1))


def set_affinity(cpus: Collection[int]) -> Collection[int] | None:
    """Run this thread (Windows: this process) on the given CPUs only. Return the previous CPUs, or
    None if the system has no affinity. Raises OSError if the process may use no given CPU."""
    if hasattr(os, "sched_setaffinity"):
        before: Collection[int] = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cpus)
        return before
    if SYSTEM == "win32":
        import psutil

        process = psutil.Process()
        before = process.cpu_affinity()
        process.cpu_affinity(sorted(cpus))
        return before
    return None


def separate_cpus(threads: Iterable[int]) -> Collection[int]:
    """Keep this thread on its current CPU, and other threads, by native ids, on this thread's other
    CPUs (Linux). Return this thread's CPUs before the call; () if nothing changed."""
    usable, mine = os.sched_getaffinity(0), {_libc().sched_getcpu()}
    others = usable - mine
    if not others or not mine <= usable:
        return ()
    try:
        os.sched_setaffinity(0, mine)
    except OSError:  # forbidden, as in some containers
        return ()
    for id in threads:
        with suppress(OSError):  # the thread has ended
            os.sched_setaffinity(id, others)
    return usable


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def has_affinity() -> bool:
    """Return True if a thread's CPUs can be chosen."""
    return hasattr(os, "sched_setaffinity") or SYSTEM == "win32"


@cache
def usable_cpus() -> frozenset[int]:
    """Return the CPUs that this process could use at the first call."""
    return frozenset(logical_cpus())


def current_cpu() -> int:
    """Return the CPU that this thread runs on now; -1 if unknown."""
    with suppress(AttributeError, OSError):
        return int(ctypes.CDLL(None).sched_getcpu())
    return -1


def numa_nodes() -> list[list[int]]:
    """Return the usable CPUs of each memory node; [] if the system does not report them."""
    allowed = set(logical_cpus())
    folders = NODES.glob("node[0-9]*")
    lists = [_numbers(_text(folder / "cpulist")) for folder in sorted(folders, key=_node_number)]
    return [cpus for found in lists if (cpus := sorted(allowed & set(found)))]


def _node_number(folder: Path) -> int:
    return int(folder.name.removeprefix("node"))


def physical_cores() -> int:
    """Return the number of physical cores: hyperthreads count once; on hybrid CPUs
    only the fast cores count (common.cpp:cpu_get_num_physical_cores, cpu_get_num_math)."""
    cpus = logical_cpus()
    fast = [n for n in cpus if n in _numbers(_text(FAST_CPUS))] or cpus
    shared = [_text(CPUS / f"cpu{n}" / "topology" / "thread_siblings_list") for n in fast]
    if all(shared):
        return len(set(shared))
    if SYSTEM == "linux":
        return len(cpus)
    for name in ("hw.perflevel0.physicalcpu", "hw.physicalcpu") if SYSTEM == "darwin" else ():
        found = _parse_int(_sysctl(name))
        if found:
            return min(len(cpus), found)
    import psutil

    return min(len(cpus), psutil.cpu_count(logical=False) or len(cpus))


def cpu_quota() -> float | None:
    """Return the CPU quota of the container, in CPUs; None without a limit."""
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
    """Return one thread per physical core, at most the quota: threads wait for each other, so a
    throttled one delays all."""
    quota = cpu_quota()
    cores = physical_cores()
    return cores if quota is None else max(1, min(cores, int(quota)))


def memory() -> tuple[int, int]:
    """Return available and total bytes; available includes caches that the OS would release."""
    available, total = _whole_memory()
    for folder in _folders("memory"):
        limits = (
            _number(folder, "memory.max", "memory.limit_in_bytes"),
            _number(folder, "memory.high"),
        )
        limit = min((n for n in limits if n is not None), default=total)
        if limit >= total:
            continue
        used = _number(folder, "memory.current", "memory.usage_in_bytes") or 0
        available = min(available, max(0, limit - used + _file_cache(folder)))
        total = limit
    return available, total


def own_memory() -> int:
    """Return the bytes of this process's memory that the system cannot drop, such as arrays."""
    fields = dict(line.split(":", 1) for line in _text(STATUS).splitlines() if ":" in line)
    if "RssAnon" in fields:
        return 1024 * int(fields["RssAnon"].split()[0])
    import psutil

    return int(psutil.Process().memory_info().rss)


def _whole_memory() -> tuple[int, int]:
    """Return free and total bytes of the machine; on Linux from /proc, without psutil."""
    fields = dict(line.split(":", 1) for line in _text(MEMINFO).splitlines() if ":" in line)
    if "MemAvailable" in fields:
        available, total = (1024 * int(fields[k].split()[0]) for k in ("MemAvailable", "MemTotal"))
        return available, total
    import psutil

    found = psutil.virtual_memory()
    return int(found.available), int(found.total)


def arm_features() -> set[str]:
    """Return the ARM_FEATURES that this ARM processor has and the system allows."""
    return {name for name, asked in ARM_FEATURES.items() if _allows(asked)}


def _allows(asked: FeatureQuery) -> bool:
    if SYSTEM == "linux":
        kind, bit = asked.linux
        return bool(_auxiliary(kind) >> bit & 1)
    if SYSTEM == "darwin":
        return _parse_int(_sysctl(f"hw.optional.arm.{asked.macos}")) == 1
    return SYSTEM == "win32" and _processor_has(asked.windows)


@cache
def allows_amx() -> bool:
    """Return True if this process may use AMX registers of its x86 processor. Linux needs one
    request, valid for all threads; other systems are not asked.
    """
    return SYSTEM == "linux" and _arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0


def _arch_prctl(code: int, argument: int) -> int:
    """Call arch_prctl; return 0, or -1 if Linux refuses."""
    return int(ctypes.CDLL(None).syscall(SYS_ARCH_PRCTL, code, ctypes.c_ulong(argument)))


def _auxiliary(kind: int) -> int:
    """Return a value of the kernel's auxiliary vector; 0 if it is missing."""
    function = ctypes.CDLL(None).getauxval
    function.restype, function.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    return int(function(kind))


def _processor_has(number: int) -> bool:
    return bool(ctypes.CDLL("kernel32").IsProcessorFeaturePresent(number))


def cpu_name() -> str:
    """Return the processor's name."""
    for line in _text(CPUINFO).splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    name = _sysctl("machdep.cpu.brand_string") if SYSTEM == "darwin" else b""
    return name.rstrip(b"\0").decode(errors="replace") or platform.processor() or platform.machine()


def cpu_identity() -> str:
    """Return the text that identifies the instruction sets of a CPU, "" if unknown. It reads only
    the first CPU, because a long file takes 10 ms."""
    try:
        with CPUINFO.open(encoding="utf-8") as file:
            first = file.read(8192).partition("\n\n")[0]
    except (OSError, UnicodeDecodeError):
        return ""
    fields = dict(line.split("\t", 1) for line in first.splitlines() if "\t" in line)
    return "\n".join(fields[name] for name in IDENTITY) if fields.keys() >= {*IDENTITY} else ""


def machine() -> str:
    """Return the processor architecture: `x86_64`, `arm64`."""
    return platform.machine()


def summary() -> str:
    """Return a summary of the machine and its usable part: `AMD EPYC, Linux x86_64, 32 CPUs; to be
    used: 8 cores (16 CPUs), quota of 4.0 CPUs, 60000 MiB, of which 20000 MiB are available`"""
    available, total = memory()
    return (
        f"{cpu_name()}, {platform.system()} {platform.machine()}, {os.cpu_count() or 1} CPUs; to be"
        f" used: {description()},"
        f" {total >> 20} MiB, of which {available >> 20} MiB are available"
    )


def description() -> str:
    """Return `8 cores (16 CPUs), quota of 4.0 CPUs`."""
    cores, cpus, quota = physical_cores(), len(logical_cpus()), cpu_quota()
    text = f"{cores} {'core' if cores == 1 else 'cores'}"
    text += f" ({cpus} CPUs)" if cpus != cores else ""
    return text if quota is None else f"{text}, quota of {quota:.1f} CPUs"


def _folders(controller: str) -> Iterator[Path]:
    """Yield the folders with limits of this process's group and its parents, of cgroup v2 and
    v1."""
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
    """Return the bytes of file cache in a group's memory, which the system drops when needed."""
    lines = _text(folder / "memory.stat").splitlines()
    found = dict(line.split(" ", 1) for line in lines if " " in line)
    kinds = ("inactive_file", "active_file")
    return sum(int(found.get(f"total_{kind}", found.get(kind, "0"))) for kind in kinds)


def _number(folder: Path, *names: str) -> int | None:
    for name in names:
        text = _text(folder / name)
        if text.isdigit():
            return int(text)
    return None


def _numbers(text: str) -> set[int]:
    """Parse a list of numbers: `0-3,8` is 0, 1, 2, 3 and 8."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _sysctl(name: str) -> bytes:
    """Return a value of macOS's sysctl; b"" for an unknown name."""
    value, size = ctypes.create_string_buffer(256), ctypes.c_size_t(256)
    library = ctypes.CDLL(None)
    failed = library.sysctlbyname(name.encode(), value, ctypes.byref(size), None, ctypes.c_size_t())
    return b"" if failed else value.raw[: size.value]


def _parse_int(raw: bytes) -> int:
    return int.from_bytes(raw, sys.byteorder)


def _text(path: Path) -> str:
    """Return the text of a small file, or "" if reading fails."""
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
