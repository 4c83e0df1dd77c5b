"""What Numba is made to do for kernels, and that it does all else for others."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from ggml_cpu import vocabulary as v
from ggml_cpu.bounds import CHECKED
from ggml_cpu.codegen import optimize_kernel
from ggml_cpu.fingerprints import Fingerprints
from ggml_cpu.kernel import fn, kernel, routine
from tests.support.native import call


@routine
def sum_of(src, n):
    total = v.float32(0)
    for i in range(n):
        total += v.ld_f32(src + 4 * i)
    return total


@fn
def doubled(x):
    return max(x, 0) + min(x, 0) + x


@kernel()
def sums_by_routine(p, ith, nth):
    n = v.ne(p, 1, 0)
    for r in range(v.ne(p, 1, 1)):
        total = doubled(sum_of(v.data(p, 1) + r * v.nb(p, 1, 1), n))
        v.st_f32(v.data(p, 0) + 4 * r, total)


@pytest.mark.skipif(CHECKED, reason="kernels that check their bounds are one function")
def test_a_routine_stays_a_function_and_helpers_do_not() -> None:
    names = [f.name for f in optimize_kernel(sums_by_routine).functions if not f.is_declaration]
    assert len(names) == 2
    assert any("sum_of" in name for name in names)


def test_a_routine_computes_what_a_helper_does() -> None:
    x = np.array([[1, 2, 3], [-4, 0.5, 0]], np.float32)
    found = np.full(2, np.nan, np.float32)
    call(sums_by_routine, found, x)
    assert found.tolist() == [12.0, -7.0]


@kernel()
def least_and_largest(p, ith, nth):
    for i in range(v.ne(p, 0, 1)):
        a, b = v.ld_i64(v.data(p, 1) + 16 * i), v.ld_i64(v.data(p, 1) + 16 * i + 8)
        v.st_i64(v.data(p, 0) + 24 * i, min(a, b))
        v.st_i64(v.data(p, 0) + 24 * i + 8, max(a, b))
        v.st_i64(v.data(p, 0) + 24 * i + 16, max(min(a, 3), -1))


def test_the_least_and_the_largest_of_whole_numbers() -> None:
    pairs = [(1, 2), (2, 1), (-5, 3), (7, 7), (2**62, -(2**62)), (-1, 0)]
    found = np.zeros((len(pairs), 3), np.int64)
    call(least_and_largest, found, np.array(pairs, np.int64))
    assert found.tolist() == [[min(p), max(p), max(min(p[0], 3), -1)] for p in pairs]


FEW = """
import sys
from ggml_cpu import helpers
from ggml_cpu.codegen import object_code
from ggml_cpu.kernel import REGISTRY
import ggml_cpu.kernels._repack

declared = len(REGISTRY.helpers)
object_code(REGISTRY.kernels["repack_q4_K"])
assert len(helpers._TYPES) < declared / 10, (len(helpers._TYPES), declared)
assert "numba.core.inline_closurecall" not in sys.modules
"""


def test_little_is_made_for_the_first_kernel() -> None:
    """Of thousands of helpers those that it calls, and nothing of Numba's own way to compile."""
    subprocess.run([sys.executable, "-c", FEW], check=True)


def test_to_be_a_routine_is_part_of_the_content() -> None:
    def declared(as_what):
        @as_what
        def same(x):
            return x

        return same

    assert Fingerprints().fingerprint(declared(fn)) != Fingerprints().fingerprint(declared(routine))


OTHERS = """
import ggml_cpu.driver
from ggml_cpu.codegen import object_code
from ggml_cpu.kernel import REGISTRY

def compiled():
    return len(object_code(REGISTRY.kernels["executor_work"]))

def of_users():
    import numba
    import numpy as np

    @numba.njit
    def f(x):
        return (x + 1)[0] + [i for i, _ in enumerate(x)][1]

    return f(np.arange(3.0))

first, second = %s
assert first() and second() and first()
"""


@pytest.mark.parametrize("turn", ["compiled, of_users", "of_users, compiled"])
def test_others_use_numba_as_they_know_it(turn: str) -> None:
    """Arrays and lists, before and after a kernel was compiled in the same process."""
    subprocess.run([sys.executable, "-W", "error", "-c", OTHERS % turn], check=True)
