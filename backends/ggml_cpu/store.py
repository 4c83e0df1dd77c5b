"""The cache of compiled kernels: `<cache>/cpu/<environment>/<kernel>-<fingerprint>.o`.

`LLAMA_PY_CACHE` sets the cache directory. If code cannot be written there, it is stored in memory
for this process. A start with all kernels cached reads only the kernels' files.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from pathlib import Path

from ggml_cpu import host_cpu, target
from ggml_cpu.fingerprints import description, environment, file_name, fingerprint
from ggml_cpu.kernel import Kernel
from ggml_cpu.symbols import kernel_symbol
from ggml_py.machine.digest import hex_digest
from ggml_py.machine.folder import Folder, cache_root

log = logging.getLogger("llama_py")

OBJECT = ".o"  # extension of kernel files
SET = ".kernels"  # extension of files with a set of kernels, one per line
MARKER = "CACHEDIR.TAG"  # file that marks our directories; backup tools skip these
MARK = "Signature: 8a477f597d28d172789f06886806bc55\n# llama-py kernels\n# "
_TITLE = "llama-py object"
_ELF = b"\x7fELF\x02\x01"  # ELF64, little-endian
_ELF_MACHINES = {"x86_64": 62, "aarch64": 183, "powerpc64le": 21, "riscv64": 243}
_ELF_HEADER = struct.Struct("<18xH20xQ10xHH2x")  # e_machine, e_shoff, e_shentsize, e_shnum


def cache_path() -> Path | None:
    """Return the parent of all environments' directories, or None without a home directory."""
    root = cache_root()
    return None if root is None else root / "cpu"


def path() -> Path | None:
    """Return this environment's directory, which may not exist yet."""
    root = cache_path()
    return None if root is None else root / environment()


class Store:
    """Object code by kernel, in this environment's directory, or in memory if writing fails.

    compiled  names of the kernels that were compiled for this process
    """

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self._memory: dict[str, bytes] = {}
        self._failed: set[Path | None] = set()  # directories that cannot be written
        self._used: set[Path] = set()
        self._wrong: set[str] = set()

    def is_cold(self) -> bool:
        """Return True if this environment has no cached kernels: its directory is missing."""
        found = path()
        return found is None or not found.is_dir()

    def read(self, kernels: Iterable[Kernel]) -> dict[Kernel, bytes]:
        """Return the code of the cached kernels; skip damaged and foreign files."""
        wanted = {kernel: file_name(kernel) for kernel in kernels}
        found = {k: self._memory[file] for k, file in wanted.items() if file in self._memory}
        there = [k for k, file in wanted.items() if k not in found and file not in self._wrong]
        with self.folder() or nullcontext() as folder:
            if folder is not None:
                for kernel in there:
                    code = _code(kernel, folder.read(wanted[kernel]))
                    if code is not None:
                        found[kernel] = code
        return found

    def folder(self) -> Folder | None:
        """Return the directory, with its use recorded; None if it is missing or not trusted."""
        at = path()
        if at is None:
            return None
        try:
            folder = Folder(at)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._tell(at, error)
            return None
        if at not in self._used:
            self._used.add(at)
            folder.touch()
            with suppress(OSError):  # then the next start loads LLVM
                host_cpu.keep()
        return folder

    def make(self) -> tuple[Folder | None, bool]:
        """Create the directory if needed, mark it as ours, and return it with True if it is new.

        Returns (None, False) if it cannot be written.
        """
        at = path()
        if at is None:
            self._tell(at, OSError(0, "no home directory"))
        if at is None or at in self._failed:
            return None, False
        try:
            at.parent.mkdir(parents=True, exist_ok=True)
            made = _mkdir(at)
            folder = Folder(at)
            try:
                if not is_marked(folder):
                    mark(folder)
            except OSError:
                folder.close()
                raise
        except OSError as error:
            self._tell(at, error)
            return None, False
        return folder, made

    def write(self, kernel: Kernel, code: bytes) -> None:
        """Store a kernel's code, in memory if it cannot be written."""
        self.compiled.append(kernel.name)
        self._wrong.discard(file_name(kernel))
        folder, _ = self.make()
        with folder or nullcontext():
            try:
                if folder is not None:
                    folder.write(file_name(kernel), _header(kernel, code) + code)
                    return
            except OSError as error:
                self._tell(path(), error)
        self._memory[file_name(kernel)] = code

    def has(self, kernels: Iterable[Kernel]) -> bool:
        """Return True if each kernel has a file, without reading it."""
        with self.folder() or nullcontext() as folder:
            return folder is not None and all(
                folder.modification_time(file_name(k)) for k in kernels
            )

    def note(self, key: str, kernels: Iterable[Kernel]) -> None:
        """Store a set of kernels under a key, for later processes."""
        with self.folder() or nullcontext() as folder, suppress(OSError):
            if folder is not None:
                lines = (f"{k.module} {k.name}\n" for k in kernels)
                folder.write(f"{key}{SET}", "".join(lines).encode())

    def read_set(self, key: str) -> list[tuple[str, str]] | None:
        """Return module and name of each kernel of the set `key`; None if it does not exist."""
        with self.folder() or nullcontext() as folder:
            found = None if folder is None else folder.read(f"{key}{SET}")
        if found is None:
            return None
        lines = (line.partition(" ") for line in found.decode(errors="replace").splitlines())
        return [(module, name) for module, _, name in lines]

    def forget(self, kernel: Kernel) -> None:
        """Discard the kernel's code, which does not load, so that it is compiled again."""
        self._memory.pop(file_name(kernel), None)
        self._wrong.add(file_name(kernel))

    def _tell(self, at: Path | None, error: OSError) -> None:
        """Log an error once per directory, and write there no more."""
        if at in self._failed:
            return
        self._failed.add(at)
        where = "" if at is None else f" in {at}"
        log.warning(
            "compiled kernels cannot be cached%s: %s; each start compiles them again; set "
            "LLAMA_PY_CACHE to a writable directory",
            where,
            error.strerror or error,
        )


STORE = Store()


def _mkdir(at: Path) -> bool:
    """Create a directory with owner permissions only; return False if it exists."""
    try:
        at.mkdir(mode=0o700)
    except FileExistsError:
        return False
    return True


def is_marked(folder: Folder) -> bool:
    """Return True if the directory has our marker, so that it may be removed."""
    return (folder.read(MARKER) or b"").startswith(MARK.encode())


def mark(folder: Folder) -> None:
    """Write the marker with this environment's description; its time is the last cleanup."""
    folder.write(MARKER, f"{MARK}{description()}\n".encode())


def _header(kernel: Kernel, code: bytes) -> bytes:
    """Return the file's header, which identifies the kernel, the target and the code's digest."""
    lines = (
        _TITLE,
        kernel.name,
        fingerprint(kernel),
        environment(),
        kernel_symbol(kernel.name),
        f"{target.TRIPLE} {target.CPU_NAME}",
        hex_digest(code),
        "",
        "",
    )
    return "\n".join(lines).encode()


def _code(kernel: Kernel, content: bytes | None) -> bytes | None:
    """Return the object code in a file if its header is this kernel's, else None."""
    header, end, code = (content or b"").partition(b"\n\n")
    if header + end != _header(kernel, code) or kernel_symbol(kernel.name).encode() not in code:
        return None
    return code if _is_native(code) else None


def _is_native(code: bytes) -> bool:
    """Return True if the object has this machine's type and all its sections, checked on Linux.

    LLVM would abort the process for other files.
    """
    machine = _ELF_MACHINES.get(target.TRIPLE.partition("-")[0])
    if "linux" not in target.TRIPLE or machine is None:
        return True
    if len(code) < _ELF_HEADER.size or not code.startswith(_ELF):
        return False
    found, sections, size, n = map(int, _ELF_HEADER.unpack_from(code))
    return found == machine and sections + size * n <= len(code)
