"""The judge of values: errors that rounding explains, and faults in single rows."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_py.inspection.judge import CLOSE, EXACT, NONE, Error, closest, compare_values, is_integer
from ggml_py.types import BY_NAME, F32, I32

Q8_0 = BY_NAME["q8_0"]


def error(expected: object, found: object) -> Error:
    return compare_values(
        np.array([[expected]], np.float32), np.array([[found]], np.float32), EXACT, F32
    )


def test_errors_of_values() -> None:
    e = [[1, 2, -2, np.inf]]
    assert error(e, e) is NONE
    found = error(e, [[1, 2.5, -2, np.inf]])
    assert (found.nmse, found.largest, found.at) == (0.25 / 9, 0.5, (1, 0, 0, 0))
    assert found.worst_element == "at [1, 0, 0, 0]: expected 2, got 2.5"
    assert found.problem == "NMSE 2.78e-02, the bound is 1e-06"
    for odd in (np.nan, np.inf):
        found = error(e, [[1, odd, -2, np.inf]])
        assert (found.nmse, found.at, bool(found.problem)) == (np.inf, (1, 0, 0, 0), True)
    assert error([[np.nan, np.nan]], [[np.nan, np.nan]]) is NONE
    assert error([[0, 0]], [[1e-9, 1e-9]]).nmse < 1e-17


def test_integers_come_in_any_order() -> None:
    assert [is_integer(BY_NAME[n]) for n in ("i32", "i8", "iq4_nl")] == [True, True, False]
    e = np.array([[[[3, 1, 2]]]], np.int32)
    assert compare_values(e, np.array([[[[1, 2, 3]]]]), 0.0, I32) is NONE
    found = compare_values(e, np.array([[[[1, 2, 4]]]]), 0.0, I32)
    assert found.nmse == pytest.approx(1 / 3)
    assert found.problem


def values(n: int, rows: int) -> np.ndarray:
    """Rows of which the first is 1000 times another, as the first token of a model is."""
    x = np.random.default_rng(n).standard_normal((1, 2, rows, n))
    x[0, 0, 0] *= 1000
    return x


@pytest.mark.parametrize(
    ("n", "bound"), [*((n, b) for n in (1, 4, 64, 576) for b in (EXACT, CLOSE)), (64, 1e-2)]
)
def test_a_hundredth_in_one_row_is_found(n: int, bound: float) -> None:
    """A bound of all values is above it: there are 1000 rows, and one outweighs the others."""
    e = values(n, 500)
    f = e * (1 + 1e-4 * np.random.default_rng(1).standard_normal(e.shape))
    assert compare_values(e, f, bound, F32).problem == ""
    f[0, 1, 7] *= 1.01
    found = compare_values(e, f, bound, F32)
    assert found.nmse < EXACT
    assert found.problem.startswith("row [7, 1, 0]" if found.problem[0] == "r" else "column [")
    assert compare_values(e, f, bound, F32, rows=False).problem == ""


def test_a_hundredth_in_one_column_is_found() -> None:
    """A row of a weight is a column of the product: each row has a little of the error."""
    e = values(576, 50)
    f = e.copy()
    f[0, 1, :, 9] *= 1.01
    assert compare_values(e, f, CLOSE, F32).problem.startswith("column [9, 1, 0] is off by +1.00%")


def test_rotated_values_have_their_length() -> None:
    """ROPE at a far position: a bound of 1e-2 does not hide that a row is too long."""
    e = values(128, 100)
    f = np.stack(
        (
            np.cos(0.05) * e[..., 0::2] - np.sin(0.05) * e[..., 1::2],
            np.sin(0.05) * e[..., 0::2] + np.cos(0.05) * e[..., 1::2],
        ),
        -1,
    )
    f = f.reshape(e.shape)
    assert compare_values(e, f, 1e-2, F32).problem == ""
    f[0, 1, 50] *= 1.01
    assert compare_values(e, f, 1e-2, F32).problem.startswith("row [50, 1, 0] is off by ")


def test_a_quantized_row_may_have_a_value_between_two_steps() -> None:
    e = np.rint(values(64, 20))
    f = e.copy()
    f[0, 1, 3, 5] += 1
    assert compare_values(e, f, EXACT, F32).problem
    assert compare_values(e, f, CLOSE, Q8_0).problem == ""
    f[0, 1, 3] *= 1.01
    assert compare_values(e, f, CLOSE, Q8_0).problem.startswith("row [3, 1, 0]")


def test_the_first_values_that_explain_a_result_decide() -> None:
    e = np.ones((1, 1, 1, 4), np.float32)
    far, near, right = ((e * x, EXACT) for x in (2, 1.1, 1))
    assert closest([far, near], e, F32).expected == pytest.approx(1.1)
    rest = iter([far, right, near])
    assert closest(rest, e, F32) is NONE
    assert next(rest) is near
