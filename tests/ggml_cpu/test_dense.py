"""Sources with gaps between the elements of a row: copied first, nodes and sources left alone."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_cpu.dense import build_steps, why_not
from ggml_cpu.table import table
from ggml_py import ops
from ggml_py.backend import CompileOptions, registry
from ggml_py.errors import UnsupportedOp
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME
from llama_py_tools.test_backend_ops.cases import all_cases
from llama_py_tools.test_backend_ops.run import Status, evaluate
from tests.ops.test_cases import SOME

WITH_GAPS = [c for c in all_cases() if "gaps" in c.args]
CHOSEN = {id(c) for c in SOME}  # cases that tests/ops/test_cases.py compares


def kernels_of(node: Tensor) -> list[str]:
    return [step.kernel.name for step in build_steps(node)]


def test_dense_sources_cost_no_copy() -> None:
    assert kernels_of(ops.add(Tensor(ne=(8, 4)), Tensor(ne=(8, 4)))) == ["add_f32_f32"]


def test_only_sources_with_gaps_are_copied() -> None:
    node = ops.add(Tensor(ne=(8, 4)), ops.transpose(Tensor(ne=(4, 8))))
    assert kernels_of(node) == ["copy_f32_f32", "add_f32_f32"]


def test_a_kernel_that_takes_gaps_gets_them() -> None:
    node = ops.concat(Tensor(ne=(8, 4)), ops.transpose(Tensor(ne=(4, 8))), 0)
    assert len(kernels_of(node)) == 1


def test_reason_is_the_kernels_own() -> None:
    node = ops.add(Tensor(BY_NAME["f16"], (8, 4)), Tensor(BY_NAME["bf16"], (8, 4)))
    assert why_not(node) == table().why_not(node) != ""
    with pytest.raises(UnsupportedOp, match="needs types"):
        build_steps(node)


def test_copies_are_made_anew_in_every_run() -> None:
    """A program that runs again reads what its source holds by then."""
    device = registry.device("cpu")
    stored = Tensor(ne=(4, 8))
    node = ops.sum_rows(ops.transpose(stored))
    buffer = device.alloc(4096)
    for t, offset in ((stored, 0), (node.src[0], 0), (node, 2048)):
        assert t is not None
        t.buffer, t.offset = buffer, offset
    program = device.compile([node], CompileOptions())
    for value in (1.0, 3.0):
        buffer.write(0, np.full(32, value, np.float32).view(np.uint8))
        program.run()
        assert (buffer.read(2048, 16).view(np.float32) == 8 * value).all()


def test_most_ops_have_a_case_with_gaps() -> None:
    assert len({c.op for c in WITH_GAPS}) > 100


@pytest.mark.parametrize("case", [c for c in WITH_GAPS if id(c) not in CHOSEN], ids=str)
def test_sources_with_gaps(case) -> None:
    outcome = evaluate(case, registry.device("cpu"), registry.device("ref"))
    assert outcome.status is Status.OK, outcome.reason
