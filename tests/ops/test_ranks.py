"""Which kernel runs a node is a matter of rank, never of the order in which files are imported."""

from __future__ import annotations

import pytest

from ggml_cpu.table import table as cpu_table
from ggml_opencl.backend import table as opencl_table
from ggml_py.backend import registry
from ggml_py.backend.kernels import KernelTable
from ggml_py.tensor import Tensor
from ggml_ref.backend import table as ref_table
from llama_py_tools.test_backend_ops.case import Case
from llama_py_tools.test_backend_ops.cases import all_cases
from llama_py_tools.test_backend_ops.run import Bench

TABLES = (cpu_table(), opencl_table, ref_table)


def nodes_of(case: Case) -> list[Tensor]:
    """The nodes of a case, and as they are with weights in layouts of the CPU's own."""
    graph, leaves = case.graph()
    nodes = graph.compute_nodes()
    if leaves.weights:
        bench = Bench(case, registry.device("cpu"), poison=False)
        bench.prepare()
        nodes += bench.graph.compute_nodes()
    return nodes


@pytest.fixture(scope="module")
def nodes() -> list[tuple[Case, Tensor]]:
    return [(c, node) for c in all_cases() if not c.perf for node in nodes_of(c)]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.backend)
def test_no_two_kernels_of_one_rank_take_a_node(
    table: KernelTable[object], nodes: list[tuple[Case, Tensor]]
) -> None:
    ties = set()
    for case, node in nodes:
        ranks = [entry.rank for entry in table.takers(node)]
        if len(ranks) != len(set(ranks)):
            ties.add(f"{node.op} of {case}: {ranks}")
    assert sorted(ties) == []


def test_the_highest_rank_runs() -> None:
    table: KernelTable[str] = KernelTable("test")
    table.add("NEG", "plain")
    table.add("NEG", "best", lambda node: "" if node.ne[0] > 1 else "needs more", rank=2)
    table.add("NEG", "good", rank=1)
    assert table.find(Tensor(op="NEG", ne=(2,))) == "best"
    assert table.find(Tensor(op="NEG", ne=(1,))) == "good"
    assert table.kernels("NEG") == ["best", "good", "plain"]
