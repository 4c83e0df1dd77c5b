"""Units of work: each is taken once, a thread's own part first, then what its neighbours left."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import kernel
from ggml_cpu.kernels._units import COUNTER, NEIGHBOURS, own_unit, start_units
from tests.support.native import call


@kernel(prepare=(start_units,))
def units_of_one(p, ith, nth):
    """Which of extra 1 units thread extra 0 takes while no other takes any; dst i64."""
    if ith == v.extra(p, 0):
        for i in range(v.ne(p, 0, 0)):
            v.st_i64(v.data(p, 0) + 8 * i, own_unit(p, ith, nth, v.extra(p, 1)))


@pytest.mark.parametrize("nth", [1, 2, 3, 9])
def test_units_of_a_thread_alone(nth):
    n, thread = 19, nth - 1
    near = [(thread + i) % nth for i in range(min(nth, 1 + NEIGHBOURS))]
    expected = [u for t in near for u in range(n * t // nth, n * (t + 1) // nth)]
    taken = np.zeros(len(expected) + 2, np.int64)
    call(units_of_one, taken, extra=[thread, n], scratch=(COUNTER * nth, 0), nth=nth)
    assert taken.tolist() == [*expected, n, n]
