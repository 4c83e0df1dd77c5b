"""LLVM's names of this machine and its CPU, cached so that a start need not load LLVM.

Only systems that load kernels without LLVM (elf.py) use the cache. The file is
`<cache>/host/<hash of the system's CPU description and of llvmlite's version>`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import llvmlite

from ggml_cpu import elf
from ggml_py.machine import host
from ggml_py.machine.digest import hex_digest
from ggml_py.machine.folder import Folder, cache_root


class HostCPU(NamedTuple):
    """LLVM's names of a machine and its CPU.

    features   True for each feature that the CPU has
    """

    triple: str
    name: str
    features: dict[str, bool]


def _path() -> Path | None:
    """Return the cache directory, or None without a home directory."""
    root = cache_root()
    return None if root is None else root / "host"


@cache
def host_cpu() -> HostCPU:
    """Return this machine's CPU from the cache, else from LLVM."""
    return _read_cached() or _query()


def _query() -> HostCPU:
    import llvmlite.binding as llvm

    features = dict(llvm.get_host_cpu_features())
    return HostCPU(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)


@cache
def _read_cached() -> HostCPU | None:
    name, path = _file_name(), _path()
    if not name or path is None:
        return None
    try:
        with Folder(path) as folder:
            content = folder.read(name) or b""
    except OSError:
        return None
    return _parse(content)


def keep() -> None:
    """Write the CPU's description to the cache for later starts; OSError on failure."""
    if _read_cached() is not None:
        return
    name, path = _file_name(), _path()
    if not name or path is None:
        return
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with Folder(path) as folder:
        folder.write(name, _text(host_cpu()))
    _read_cached.cache_clear()


def _file_name() -> str:
    """Return the cache file's name for this CPU and llvmlite's version; "" without a cache."""
    about = host.cpu_identity() if elf.is_possible() else ""
    digest = hex_digest(f"{llvmlite.__version__}\n{about}".encode())
    return digest[:16] if about else ""


def _text(cpu: HostCPU) -> bytes:
    features = ",".join(f"{'+' if on else '-'}{name}" for name, on in cpu.features.items())
    content = f"{cpu.triple}\n{cpu.name}\n{features}\n".encode()
    return content + hex_digest(content).encode()


def _parse(content: bytes) -> HostCPU | None:
    """Parse a cache file; return None unless its content and digest are valid."""
    lines = content.decode("ascii", "replace").split("\n")
    if len(lines) != 4:
        return None
    features = {word[1:]: word[0] == "+" for word in lines[2].split(",") if word}
    found = HostCPU(lines[0], lines[1], features)
    return found if _text(found) == content else None
