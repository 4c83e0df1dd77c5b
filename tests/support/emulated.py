"""A pytest plug-in: kernels are compiled for an ARM CPU and run in an emulator.

    LLAMA_PY_EMULATE=neon-i8mm python -m pytest -p tests.support.emulated \\
        tests/ggml_cpu/test_matmul.py

Needs qemu-aarch64 and a compiler for it (Debian: qemu-user, gcc-aarch64-linux-gnu). The emulated
process sees the tests' tensors in shared memory, at the same addresses.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from tests.support.foreign import become

become(os.environ["LLAMA_PY_EMULATE"])

from ggml_cpu import codegen, executor, objcache, params, store, target  # noqa: E402
from ggml_cpu.kernel import REGISTRY, Kernel  # noqa: E402
from ggml_cpu.symbols import kernel_symbol  # noqa: E402
from ggml_py import backend  # noqa: E402
from tests.support import native  # noqa: E402

CC, QEMU = "aarch64-linux-gnu-gcc", ("qemu-aarch64", "-cpu", "max", "-L", "/usr/aarch64-linux-gnu")
BASE, SIZE = 1 << 38, 1 << 33  # address and bytes of the shared memory
DRIVER = r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
int main(int n, char **args) {
    long base, size, p, ith, nth;
    char path[4096], name[512];
    sscanf(args[2], "%ld", &base), sscanf(args[3], "%ld", &size);
    int flags = MAP_SHARED | MAP_FIXED, file = open(args[1], O_RDWR);
    if (mmap((void *)base, size, PROT_READ | PROT_WRITE, flags, file, 0) == MAP_FAILED) return 1;
    while (scanf("%4095s %511s %ld %ld %ld", path, name, &p, &ith, &nth) == 5) {
        void *library = dlopen(path, RTLD_NOW);
        if (!library) return fprintf(stderr, "%s\n", dlerror()), 2;
        ((void (*)(long, long, long))dlsym(library, name))(p, ith, nth);
        puts("done"), fflush(stdout);
    }
}
"""


class Arena:
    """Memory that the emulated process has at the same addresses. It is given out once."""

    def __init__(self, file: Path) -> None:
        with file.open("wb") as f:
            f.truncate(SIZE)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype, self.used = ctypes.c_void_p, 64
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        with file.open("r+b") as f:
            flags = mmap.MAP_SHARED | 0x100000  # MAP_FIXED_NOREPLACE
            at = libc.mmap(BASE, SIZE, mmap.PROT_READ | mmap.PROT_WRITE, flags, f.fileno(), 0)
        assert at == BASE, os.strerror(ctypes.get_errno())

    def bytes(self, size: int, alignment: int = 64) -> np.ndarray:
        start = -(-self.used // alignment) * alignment
        self.used = start + size
        assert self.used <= SIZE
        return np.frombuffer((ctypes.c_uint8 * size).from_address(BASE + start), np.uint8)

    def copy(self, a: np.ndarray) -> np.ndarray:
        assert a.flags.c_contiguous
        new = self.bytes(a.nbytes).view(a.dtype).reshape(a.shape)
        new[...] = a
        return new


FOLDER = tempfile.TemporaryDirectory()
ARENA_FILE = Path(FOLDER.name) / "arena"
ARENA = Arena(ARENA_FILE)
KERNELS: list[Kernel] = []  # by the number that stands for their address


def start() -> subprocess.Popen[str]:
    source, program = Path(FOLDER.name) / "driver.c", Path(FOLDER.name) / "driver"
    source.write_text(DRIVER)
    subprocess.run([CC, "-O1", "-w", "-o", program, source, "-ldl", "-lm"], check=True)
    arguments = [*QEMU, program, ARENA_FILE, str(BASE), str(SIZE)]
    return subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


PROCESS = start()


def library(kernel: Kernel) -> Path:
    """The kernel as a shared library, kept in the cache."""
    folder, _ = store.STORE.make()
    directory = store.path()
    assert folder is not None and directory is not None
    folder.close()
    path = directory / f"{store.file_name(kernel)}.so"
    if not path.exists():
        code = path.with_suffix(".o")
        code.write_bytes(codegen.object_code(kernel))
        command = [CC, "-shared", "-nostdlib", "-o", path, code, "-lm", "-lc"]
        subprocess.run(command, check=True)
        code.unlink()
    return path


def run(kernel: Kernel, block: int, n_threads: int) -> None:
    """As all threads, one after the other."""
    assert PROCESS.stdin is not None and PROCESS.stdout is not None
    for ith in range(n_threads):
        call = f"{library(kernel)} {kernel_symbol(kernel.name)} {block} {ith} {n_threads}\n"
        PROCESS.stdin.write(call)
        assert PROCESS.stdout.readline() == "done\n", f"{kernel.name} ended the emulator"


class Pool:
    """Stands for the threads of an executor."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads

    def run(self, program: int, steps: int, times: int) -> None:
        entries = np.ctypeslib.as_array((ctypes.c_int64 * (4 * steps)).from_address(program))
        for number, block, *_ in entries.reshape(steps, 4):
            run(KERNELS[number - 1], block, self.n_threads)


def load_kernels(kernels: list[Kernel | str], progress: object = None) -> dict[str, int]:
    declared = [k if isinstance(k, Kernel) else REGISTRY.kernels[k] for k in kernels]
    for kernel in declared:
        if kernel not in KERNELS:
            KERNELS.append(kernel)
    return {k.name: KERNELS.index(k) + 1 for k in declared}


def machine() -> llvm.TargetMachine:
    return llvm.Target.from_triple(target.TRIPLE).create_target_machine(
        cpu=target.CPU_NAME, features=target.feature_string(), opt=3, reloc="pic"
    )


def new_blocks(count: int) -> np.ndarray:
    blocks = ARENA.bytes(8 * count * params.WORDS).view(np.int64).reshape(count, params.WORDS)
    blocks[:] = 0
    return blocks


def call(
    kernel: Kernel,
    dst: Any,
    *srcs: Any,
    op_params: bytes = b"",
    extra: Any = (),
    scratch: tuple[int, int] = (0, 0),
    nth: int = 1,
) -> None:
    """native.py:call."""
    result = ARENA.copy(dst)
    tensors = [result, *(None if s is None else ARENA.copy(s) for s in srcs)]
    blocks, (shared, local) = new_blocks(1), scratch
    views = [None if t is None else native.view(t) for t in tensors]
    params.pack(blocks[0], views, op_params, extra)
    memory = ARENA.bytes(shared + nth * local + 64)
    params.set_scratch(blocks[0], memory.ctypes.data, memory.ctypes.data + shared, local)
    for step in (*kernel.prepare, kernel):
        run(step, params.block_address(blocks), nth)
    dst[...] = result


codegen.machine = machine
objcache.load_kernels = executor.load_kernels = load_kernels
executor.Executor._start = lambda self: Pool(self.n_threads)
params.new_blocks, backend.aligned_bytes, native.call = new_blocks, ARENA.bytes, call
