"""Whether tensors share bytes: views of one tensor, against the bytes of their elements."""

from __future__ import annotations

import itertools

import numpy as np

from ggml_py.fusion.match import overlap
from ggml_py.ops import view
from ggml_py.tensor import Tensor

ROW, ROWS = 12, 5


def numbers(t: Tensor) -> set[int]:
    """Which elements of its root a view has."""
    steps = itertools.product(*(range(n) for n in t.ne))
    of = (sum(i * nb for i, nb in zip(place, t.nb, strict=True)) for place in steps)
    return {(t.view_offs + n) // 4 for n in of}


def test_columns_of_the_same_rows_are_apart() -> None:
    x = Tensor(ne=(ROW, ROWS))
    first, second = (view(x, (3, 2, ROWS), (3, ROW), at) for at in (0, 6))
    assert not overlap(first, second) and not overlap(second, first)
    assert overlap(first, first) and overlap(first, x)
    assert overlap(first, view(x, (1,), offset=2 * ROW + 5))
    across = view(x, (3, 2, ROWS - 1), (3, ROW), 8)  # into the next row
    assert overlap(across, first) and not numbers(across).isdisjoint(numbers(first))
    across = view(x, (3, 2, ROWS - 1), (3, ROW), 6 + 3)  # where rows begin does not matter
    assert not overlap(across, view(x, (3, 2, ROWS - 1), (3, ROW), 3))


def test_what_shares_an_element_overlaps() -> None:
    rng, x = np.random.default_rng(4), Tensor(ne=(ROW, ROWS))
    apart = 0
    for _ in range(2000):
        views = []
        for _ in range(2):
            inner = int(rng.integers(1, 4))
            ne = (int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(1, 4)))
            step = int(rng.choice([ROW, ROW // 2, 2 * ROW, 5]))
            end = (ne[0] - 1) + (ne[1] - 1) * inner + (ne[2] - 1) * step
            if end < ROW * ROWS:
                offset = int(rng.integers(0, ROW * ROWS - end))
                views.append(view(x, ne, (inner, step), offset))
        if len(views) == 2:
            a, b = views
            disjoint = numbers(a).isdisjoint(numbers(b))
            assert overlap(a, b) or disjoint, (a, b)
            assert overlap(a, b) == overlap(b, a)
            within = a.view_offs < b.view_offs + b.nbytes and b.view_offs < a.view_offs + a.nbytes
            apart += within and not overlap(a, b)
    assert apart > 20
