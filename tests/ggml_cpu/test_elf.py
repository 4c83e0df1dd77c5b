"""Object code loaded without LLVM: what it makes runs, what is unusual or damaged does not."""

from __future__ import annotations

import ctypes
import errno
import random
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from ggml_cpu import elf, mcjit
from ggml_cpu.codegen import machine
from ggml_cpu.symbols import externals
from ggml_cpu.target import TRIPLE
from ggml_py.errors import BackendError

pytestmark = pytest.mark.skipif(not elf.is_possible(), reason="needs Linux on x86-64")

# Stores f(g(x)) with a table, a constant of its own, a function of C and one of its own.
WHOLE = """
    @table = internal constant [4 x double] [double 1.5, double 2.5, double 3.5, double 4.5]
    @second = internal constant double* getelementptr ([4 x double], [4 x double]* @table, i64 0, i64 1)
    declare double @floor(double)
    define internal double @half(double %x) noinline {
        %y = fmul double %x, 0.5
        ret double %y
    }
    define void @"a.kernel"(i64 %p, i64 %i, i64 %n) {
        %at = inttoptr i64 %p to double*
        %entry = getelementptr [4 x double], [4 x double]* @table, i64 0, i64 %i
        %a = load volatile double, double* %entry
        %from = load volatile double*, double** @second
        %b = load double, double* %from
        %c = fadd double %a, %b
        %d = call double @half(double %c)
        %e = call double @floor(double %d)
        store double %e, double* %at
        ret void
    }
"""  # noqa: E501


def compiled(text: str) -> bytes:
    module = llvm.parse_assembly(f'target triple = "{TRIPLE}"\n{text}')
    return bytes(machine().emit_object(module))


def result(image: elf.LoadedCode, i: int) -> float:
    word = np.full(1, np.nan)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)
    kind(image.addresses["a.kernel"])(word.ctypes.data, i, 4)
    return float(word[0])


def placed(code: bytes) -> elf.LoadedCode:
    image = elf.place({"a.kernel": code}, externals())
    assert image is not None
    return image


def test_runs_as_with_llvm() -> None:
    code = compiled(WHOLE)
    ours, theirs = placed(code), mcjit.place({"a.kernel": code})
    for i, want in enumerate((2.0, 2.0, 3.0, 3.0)):
        assert result(ours, i) == result(theirs, i) == want


def test_several_at_once() -> None:
    """Each is complete, and none is where another is."""
    codes = {f"k{i}": compiled(WHOLE.replace("a.kernel", f"k{i}")) for i in range(5)}
    image = elf.place(codes | {"no": b"text"}, externals())
    assert image is not None and list(image.addresses) == [*codes]
    assert len({*image.addresses.values()}) == 5


def test_memory_is_not_writable() -> None:
    image = placed(compiled(WHOLE))
    start = image.addresses["a.kernel"]
    for line in Path("/proc/self/maps").read_text("ascii").splitlines():
        low, high = (int(word, 16) for word in line.split()[0].split("-"))
        if low <= start < high:
            assert line.split()[1].startswith("r-x")
            return
    pytest.fail("it is nowhere")


UNUSUAL = {
    "what can be written": '@"x" = global i64 5',
    "what is zero": '@"x" = global [64 x i64] zeroinitializer',
    "of each thread": '@"x" = thread_local global i64 5',
    "far alignment": '@"x" = constant i64 5, align 4096',
}


@pytest.mark.parametrize("more", UNUSUAL.values(), ids=UNUSUAL)
def test_the_unusual_is_left_to_llvm(more: str) -> None:
    assert elf.place({"a.kernel": compiled(WHOLE + more)}, externals()) is None


def test_an_unknown_function_is_left_to_llvm() -> None:
    assert placed(compiled(WHOLE.replace("@floor", "@flour"))).addresses == {}


def test_relative_addresses_are_left_to_llvm() -> None:
    target = llvm.Target.from_triple(TRIPLE)
    generator = target.create_target_machine(reloc="static", codemodel="small")
    module = llvm.parse_assembly(f'target triple = "{TRIPLE}"\n{WHOLE}')
    assert placed(bytes(generator.emit_object(module))).addresses == {}


def test_another_symbol() -> None:
    image = elf.place({"another": compiled(WHOLE)}, externals())
    assert image is not None and image.addresses == {}


def test_damaged_code_is_refused_or_loaded() -> None:
    """Whatever bytes say, nothing outside of its memory is touched."""
    whole, rng = compiled(WHOLE), random.Random(1)
    for _ in range(3000):
        code = bytearray(whole[: rng.choice((len(whole), rng.randrange(len(whole))))])
        for _ in range(rng.randint(0, 4)):
            if code:
                code[rng.randrange(len(code))] = rng.choice((0, 1, 0x7F, 0xFF, rng.randrange(256)))
        elf.place({"a.kernel": bytes(code)}, externals())


def test_a_system_that_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forbids:
        @staticmethod
        def mprotect(*_: object) -> int:
            ctypes.set_errno(errno.EACCES)
            return -1

    monkeypatch.setattr(elf.ctypes, "CDLL", lambda *_, **__: Forbids)
    with pytest.raises(
        BackendError, match=r"does not permit running generated code \(Permission denied\)"
    ):
        elf.place({"a.kernel": compiled(WHOLE)}, externals())
