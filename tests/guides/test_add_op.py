"""ggml_py/ops/README.md: the files it names, and no others, make an op."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import SCRIPTS, clean_environment
from tests.support.installed import devices_or_skip
from tests.support.limits import SECONDS

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "ggml_py" / "ops" / "README.md"
SOURCES = ("ggml_py", "backends", "apps/llama_py_tools")
CHECKS = (
    "tests/ops/test_families.py",
    "tests/ops/test_ranks.py",
    "tests/ops/test_cases.py::test_every_op_has_a_case",
    "tests/ops/test_cases.py::test_every_op_has_a_timed_case",
    "tests/ops/test_cases.py::test_every_op_is_supported",
)

BUILDER = '''
from ggml_py.ops.registry import node, op, require
from ggml_py.tensor import Tensor


@op("TOY", "factor:f", inplace=True)
def toy(a: Tensor, factor: float) -> Tensor:
    """factor * a + 1"""
    require(a.has_contiguous_rows(), "toy: rows must be dense", a)
    return node("TOY", a.type, a.ne, a, params=(factor,))
'''

REFERENCE = """
from ggml_py.tensor import Tensor
from ggml_ref.table import table
from ggml_ref.values import Values


@table.op("TOY")
def toy(node: Tensor, a: Values) -> Values:
    return node.param("factor") * a + 1
"""

KERNEL = """
from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import kernel
from ggml_cpu.kernels._common import n_rows, row_address, types_are


@kernel("TOY", when=types_are("f32", "f32"))
def toy_f32(p, ith, nth):
    n, factor = v.ne(p, 0, 0), v.op_f32(p, 0)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        d, x = row_address(p, 0, r), row_address(p, 1, r)
        for i in range(0, n, v.LANES):
            v.store_n(d + 4 * i, v.f32_load_n(x + 4 * i, n - i) * factor + 1.0, n - i)
"""

LAUNCHER = """
from ggml_opencl.conditions import all_typed
from ggml_opencl.table import Launch, items, table
from ggml_py.tensor import Tensor


@table.op("TOY", all_typed((0, -1), "f32"))
def toy(node: Tensor) -> list[Launch]:
    n, scalars = items(node.n_elements), (float(node.param("factor")),)
    return [Launch("toy", "toy", (node.src[0], node), n, scalars)]
"""

PROGRAM = """
KERNEL toy(TENSOR(a), TENSOR(dst), const float factor) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    store_f32(AT(dst, i), factor * load_f32(AT(a, i)) + 1.0f);
}
"""

GRADIENT = """
from ggml_py.gradients._declare import gradient
from ggml_py.ops import scale
from ggml_py.tensor import Tensor


@gradient("TOY")
def toy(t: Tensor, grad: Tensor) -> Tensor:
    return scale(grad, float(t.param("factor")))
"""

CASE = """
from ggml_py import ops
from ggml_py.tensor import Tensor
from llama_py_tools.test_backend_ops.case import Leaves, case


@case("TOY", ne=[(33, 5, 3, 2), (64, 1, 1, 1), (5, 0, 1, 1)], factor=[2.5], v=[False, True])
@case("TOY", perf=True, ne=[(4096, 512, 1, 1)], factor=[2.5], v=[False])
def toy(new: Leaves, ne: tuple[int, ...], factor: float, v: bool) -> Tensor:
    return ops.toy((new.part if v else new)(ne), factor)
"""

FILES = {
    "ggml_py/ops/toy.py": BUILDER,
    "ggml_py/gradients/toy.py": GRADIENT,
    "backends/ggml_ref/ops/toy.py": REFERENCE,
    "backends/ggml_cpu/kernels/toy.py": KERNEL,
    "backends/ggml_opencl/ops/toy.py": LAUNCHER,
    "backends/ggml_opencl/kernels/toy.cl": PROGRAM,
    "apps/llama_py_tools/test_backend_ops/cases/toy.py": CASE,
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources with the op added."""
    for source in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / source, tmp_path / source, ignore=ignored)
    for path, text in FILES.items():
        (tmp_path / path).write_text(f'"""Toy."""\n{text}' if path.endswith("py") else text)
    with (tmp_path / "ggml_py" / "ops" / "__init__.py").open("a") as exports:
        exports.write("from ggml_py.ops.toy import *  # noqa: F403\n")
    return tmp_path


def run(tree: Path, *command: str) -> subprocess.CompletedProcess[str]:
    paths = [tree, *(tree / name for name in ("backends", "apps"))]
    env = clean_environment() | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    return subprocess.run(
        command, cwd=tree, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def judge(tree: Path, backend: str = "cpu", mode: str = "test") -> list[str]:
    """What test-backend-ops says of each case."""
    done = run(tree, str(SCRIPTS / "test-backend-ops"), mode, "-b", backend, "-o", "TOY")
    text = re.sub("\x1b\\[[0-9;]*m", "", done.stdout)
    return re.findall(r"^ *TOY\(.*\): (.*)$", text, re.M)


def test_the_guide_names_these_files() -> None:
    guide = GUIDE.read_text()
    assert {p.replace("F", "toy") for p in re.findall(r"`([\w/]+/F\.\w+)`", guide)} == set(FILES)
    assert "`ggml_py/ops/__init__.py`" in guide
    assert "docs/ops.md" in guide


@pytest.mark.parametrize("backend", ["cpu", "opencl"])
def test_the_op_passes(tree: Path, backend: str) -> None:
    devices_or_skip(backend)
    answers = judge(tree, backend)
    assert answers
    assert set(answers) == {"OK"}


def test_its_gradient_passes(tree: Path) -> None:
    assert "OK" in judge(tree, mode="grad")
    (tree / "ggml_py/gradients/toy.py").unlink()
    assert "OK" not in judge(tree, mode="grad")


@pytest.mark.parametrize("path", [p for p in FILES if "opencl" not in p and "gradients" not in p])
def test_every_file_is_needed(tree: Path, path: str) -> None:
    (tree / path).unlink()
    assert "OK" not in judge(tree)


def test_a_wrong_kernel_is_found(tree: Path) -> None:
    kernel = tree / "backends/ggml_cpu/kernels/toy.py"
    kernel.write_text(kernel.read_text().replace("+ 1.0", "- 1.0"))
    assert any(answer.endswith("FAIL") for answer in judge(tree))


def test_the_checks_of_all_ops_are_content(tree: Path) -> None:
    shutil.copytree(ROOT / "tests", tree / "tests", ignore=shutil.ignore_patterns("data"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    done = run(tree, sys.executable, "-m", "pytest", "-q", *CHECKS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_gets_its_row_in_the_table(tree: Path) -> None:
    """By the guide's last command; that the same command makes what tests/ops/test_support_table.py
    compares with, that test shows of all other ops."""
    command = (str(SCRIPTS / "test-backend-ops"), "support", "--output", "markdown", "-o", "TOY")
    row = next(line for line in run(tree, *command).stdout.splitlines() if "TOY" in line)
    assert set(row.split("|")[2:-1]) == {" yes "}
