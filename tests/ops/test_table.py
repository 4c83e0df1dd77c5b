"""Which kernel takes a node is remembered by the node's form."""

from __future__ import annotations

import subprocess
import sys
from ast import literal_eval
from concurrent.futures import ThreadPoolExecutor

import pytest

from ggml_cpu.table import table as cpu_table
from ggml_opencl.backend import table as opencl_table
from ggml_py import ops
from ggml_py.backend.kernels import FORMS, KernelTable
from ggml_py.tensor import Tensor
from ggml_py.types import F16
from ggml_ref.backend import table as ref_table
from llama_py_tools.test_backend_ops.cases import all_cases
from tests.support.limits import SECONDS
from tests.support.locks import NotedLock


@pytest.mark.parametrize("name", ["cpu", "opencl", "ref"])
def test_nothing_but_the_form_decides(name: str) -> None:
    """The kernels of all cases are those that are found when each node is looked at anew."""
    table = {"cpu": cpu_table(), "opencl": opencl_table, "ref": ref_table}[name]
    nodes = [t for case in all_cases()[::7] for t in case.graph()[0].compute_nodes()]
    for t in nodes:
        table.find(t)
    astray = [t for t in nodes if table.find(t) is not first_taker(table, t)]
    assert astray == []


def first_taker(table: KernelTable, node: Tensor) -> object:
    takers = table.takers(node)
    return takers[0].kernel if takers else None


def test_a_form_is_looked_at_once() -> None:
    table, seen = KernelTable[str]("some"), list[Tensor]()

    def when(t: Tensor) -> str:
        seen.append(t)
        return "" if t.ne[0] > 4 else "needs more"

    table.add("NEG", "long", when)
    long, short, other = (ops.neg(Tensor(ne=(n,))) for n in (8, 4, 8))
    assert [table.find(t) for t in (long, short, other, short)] == ["long", None, "long", None]
    assert seen == [long, short]
    assert table.find(ops.neg(Tensor(F16, (8,)))) == "long" and len(seen) == 3
    table.add("NEG", "any", rank=-1)
    assert [table.find(t) for t in (long, short)] == ["long", "any"]


def test_few_forms_are_kept() -> None:
    table = KernelTable[str]("some")
    table.add("NEG", "all")
    for n in range(1, FORMS + 10):
        assert table.find(ops.neg(Tensor(ne=(n,)))) == "all"
    assert len(table._found) <= FORMS


LAZY = """
import sys
from ggml_cpu.table import table
from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import F32

table().find(ops.neg(Tensor(F32, (8,))))
print(sorted(m.split(".")[2] for m in sys.modules if m.startswith("ggml_cpu.kernels.")))
"""


def test_only_families_that_are_asked_for_are_imported() -> None:
    found = literal_eval(subprocess.check_output([sys.executable, "-c", LAZY], text=True))
    assert "unary" in found and not {"attention", "conv", "matrix", "ssm"} & set(found)


def test_threads_that_plan_at_the_same_time_find_the_same() -> None:
    """The first one imports the family until another has come; that one waits for it."""

    declared: list[str] = []

    def declare(op: str) -> None:
        declared.append(op)
        if len(declared) > 1:
            lock.come.set()
        assert lock.come.wait(SECONDS)
        table.add(op, "kernel")

    def find(n: int) -> str | None:
        return table.find(ops.neg(Tensor(ne=(n,))))

    table = KernelTable[str]("some", declare)
    lock = table._declaring = NotedLock(table._declaring, 2)  # type: ignore[assignment]
    with ThreadPoolExecutor(4) as pool:
        finding = [pool.submit(find, n) for n in range(1, 5)]
        for one in finding:
            one.add_done_callback(lambda _: lock.come.set())  # it has not waited
        assert [one.result() for one in finding] == ["kernel"] * 4
    assert declared == ["NEG"]
