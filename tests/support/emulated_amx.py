"""AMX on a CPU that has AVX512 with bf16: its instructions become calls of functions of the same
meaning, and each call of a kernel has registers of its own, in memory.

    python -m tests.support.emulated_amx -b cpu -o MUL_MAT,MUL_MAT_ID         test-backend-ops
    python -m pytest -p tests.support.emulated_amx tests/ggml_cpu/test_matmul.py

What a CPU refuses, such as registers whose shapes do not fit together, gives wrong values here.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from functools import cache
from pathlib import Path

import platformdirs

from ggml_cpu.targets import AMX_FEATURES, NAMED
from tests.support.foreign import become

NAME = "avx512-amx"
_CACHE = os.environ.get("LLAMA_PY_CACHE") or platformdirs.user_cache_dir("llama-py")
if NAME not in _CACHE:  # what is compiled here is no code for a CPU with AMX
    _version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    os.environ["LLAMA_PY_CACHE"] = f"{_CACHE}/{NAME}-{_version}"
become(NAME)

import llvmlite.binding as llvm  # noqa: E402

from ggml_cpu import children, codegen  # noqa: E402
from ggml_cpu import vocabulary as v  # noqa: E402
from ggml_cpu.kernel import Function, fn  # noqa: E402

NEEDED = NAMED[NAME].features - AMX_FEATURES  # of the machine that emulates

# The state: a configuration, as ldtilecfg reads it, and eight registers of 16 rows of LINE bytes.
LINE, BYTES = 64, 64 + 8 * 1024
WRONG = 0x7E7E7E7E


@fn
def row_of(state, register, i):
    return state + 64 + 1024 * register + LINE * i


@fn
def rows_of(state, register):
    return v.ld_u8(state + 48 + register)


@fn
def bytes_of(state, register):
    return v.ld_u16(state + 16 + 2 * register)


@fn
def clear(state, start, end):
    for i in range(start, end, LINE):
        v.store(state + i, v.i32x16(0))


def ldtilecfg(state, address):
    clear(state, 0, BYTES)
    v.store(state, v.i32x16_load(address))


def tilerelease(state):
    clear(state, 0, LINE)


def tilezero(state, register):
    clear(row_of(state, register, 0), 0, 1024)


def tileloadd64(state, register, address, stride):
    clear(row_of(state, register, 0), 0, 1024)
    for i in range(rows_of(state, register)):
        for j in range(bytes_of(state, register)):
            v.st_u8(row_of(state, register, i) + j, v.ld_u8(address + i * stride + j))


def tilestored64(state, register, address, stride):
    for i in range(rows_of(state, register)):
        for j in range(bytes_of(state, register)):
            v.st_u8(address + i * stride + j, v.ld_u8(row_of(state, register, i) + j))


@fn
def fit(state, c, a, b):
    """Whether the shapes do."""
    rows, words = rows_of(state, b), bytes_of(state, b)
    as_wide = bytes_of(state, a) == 4 * rows and bytes_of(state, c) == words
    return rows_of(state, c) == rows_of(state, a) > 0 and as_wide and rows > 0


@fn
def spoil(state, register):
    for i in range(256):
        v.st_i32(row_of(state, register, 0) + 4 * i, WRONG)


@fn
def bf16(address):
    """v.ld_bf16, which is compiled with checks of bounds where kernels are."""
    return v.f32_of_bits(v.ld_u16(address) << 16)


def tdpbf16ps(state, c, a, b):
    """The even products are added up by themselves, and the odd ones."""
    if not fit(state, c, a, b):
        spoil(state, c)
        return
    for m in range(rows_of(state, c)):
        for n in range(bytes_of(state, c) // 4):
            even, odd = v.float32(0.0), v.float32(0.0)
            for k in range(rows_of(state, b)):
                x, y = row_of(state, a, m) + 4 * k, row_of(state, b, k) + 4 * n
                even = v.float32(even + bf16(x) * bf16(y))
                odd = v.float32(odd + bf16(x + 2) * bf16(y + 2))
            at = row_of(state, c, m) + 4 * n
            v.st_f32(at, v.ld_f32(at) + (even + odd))


def tdpbssd(state, c, a, b):
    if not fit(state, c, a, b):
        spoil(state, c)
        return
    for m in range(rows_of(state, c)):
        for n in range(bytes_of(state, c) // 4):
            at = row_of(state, c, m) + 4 * n
            total = v.ld_i32(at)
            for k in range(4 * rows_of(state, b)):
                x = v.ld_i8(row_of(state, a, m) + k)
                total += x * v.ld_i8(row_of(state, b, k // 4) + 4 * n + k % 4)
            v.st_i32(at, total)


# By the name of the instruction, and the number of its operands.
INSTRUCTIONS: dict[str, tuple[Function, int]] = {
    "ldtilecfg": (ldtilecfg, 1), "tilerelease": (tilerelease, 0), "tilezero": (tilezero, 1),
    "tileloadd64": (tileloadd64, 3), "tilestored64": (tilestored64, 3),
    "tileloaddt164": (tileloadd64, 3),
    "tdpbf16ps": (tdpbf16ps, 3), "tdpbssd": (tdpbssd, 3),
}  # fmt: skip
CALL = re.compile(r"^ *(?:tail )?call void @llvm\.x86\.(\w+)\((.*)\).*$", re.MULTILINE)
ATTRIBUTE = re.compile(r"\b(nonnull|noundef|align \d+|captures\(\w+\)|dereferenceable\(\d+\)) ")
_optimize = codegen.optimize


@cache
def code_of(name: str) -> bytes:
    """The function for an instruction, optimised."""
    from numba.core import types

    from ggml_cpu.frontend import Library, lower_function

    function, count = INSTRUCTIONS[name]
    signature = types.void(*[types.int64] * (1 + count))
    module = _optimize(lower_function(f"amx.{name}", function, signature, Library), f"amx.{name}")
    return bytes(module.as_bitcode())


class _Calls:
    """What stands for the calls of a module's intrinsics."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._count = 0

    def __call__(self, found: re.Match[str]) -> str:
        name, lines, values = found[1], [], ["i64 %amx.state"]
        self.names.add(name)
        for text in re.split(r", (?![^(]*\))", found[2]) if found[2] else []:
            kind, value = ATTRIBUTE.sub("", text).split(" ", 1)
            if kind == "ptr":
                self._count += 1
                lines.append(f"  %amx.{self._count} = ptrtoint ptr {value} to i64")
                value = f"%amx.{self._count}"
            values.append(f"i64 {value}")
        return "\n".join([*lines, f"  call void @amx.{name}({', '.join(values)})"])


def optimize(module: llvm.ModuleRef, entry: str) -> llvm.ModuleRef:
    """codegen.py:optimize, and no instruction of AMX is left."""
    module, calls = _optimize(module, entry), _Calls()
    text = CALL.sub(calls, str(module))
    if not calls.names:
        return module
    assert all("amx." not in f for f in re.split(r"^define ", text, flags=re.MULTILINE)[2:])
    state = f"  %amx.memory = alloca [{BYTES} x i8], align 64\n"
    state += "  %amx.state = ptrtoint ptr %amx.memory to i64\n"
    text = re.sub(r"^(define .*\{\n(?:[\w.]+:.*\n)?)", rf"\1{state}", text, count=1, flags=re.M)
    text = re.sub(r"^declare .*@llvm\.x86\.(ld)?t(ile|dp).*\n", "", text, flags=re.MULTILINE)
    for name in sorted(calls.names):
        operands = ", ".join(["i64"] * (1 + INSTRUCTIONS[name][1]))
        text += f"\ndeclare void @amx.{name}({operands})\n"
    found = llvm.parse_assembly(text)
    for name in sorted(calls.names):
        found.link_in(llvm.parse_bitcode(code_of(name)))
        found.get_function(f"amx.{name}").linkage = "internal"
    found.verify()
    return found


codegen.optimize = optimize
children._CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); " + (
    "import tests.support.emulated_amx; from ggml_cpu.serve import serve; serve()"
)

if __name__ == "__main__":
    sys.modules["tests.support.emulated_amx"] = sys.modules["__main__"]
    from llama_py_tools.start import test_backend_ops

    sys.exit(test_backend_ops())
