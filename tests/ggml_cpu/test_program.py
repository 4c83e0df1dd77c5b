"""Programs: where they are cut."""

from __future__ import annotations

from ggml_cpu.program import SLICE_SECONDS, estimate
from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME


def test_a_row_written_into_a_cache_counts_as_a_row() -> None:
    row, at = Tensor(ne=(1024, 1)), Tensor(BY_NAME["i64"], (1,))
    seconds = [
        estimate(ops.set_rows(Tensor(BY_NAME["f16"], (1024, n)), row, at)) for n in (8, 131072)
    ]
    assert seconds[0] == seconds[1] < SLICE_SECONDS / 100
