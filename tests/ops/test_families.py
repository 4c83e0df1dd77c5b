"""An op's family is the file of its builder; what else there is of the op has that name too.

A family may also be a folder of that name. Files with a leading underscore hold no op.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.resources import files
from pkgutil import walk_packages
from types import ModuleType

import pytest

import ggml_cpu.kernels
import ggml_opencl.kernels
import ggml_opencl.ops
import ggml_py.gradients
import ggml_py.ops
import ggml_ref.ops
from ggml_cpu.table import table as cpu_table
from ggml_opencl.backend import table as opencl_table
from ggml_py.gradients import all_gradients
from ggml_py.ops.registry import OPS
from ggml_ref.backend import table as ref_table
from llama_py_tools.test_backend_ops import cases
from llama_py_tools.test_backend_ops.case import CASES

PACKAGES = (ggml_ref.ops, ggml_cpu.kernels, ggml_opencl.ops, ggml_py.gradients, cases)


def places(package: ModuleType) -> Iterator[tuple[str, str]]:
    """(op, module) of each kernel, launcher, reference, gradient or case."""
    if package is ggml_py.gradients:
        yield from ((op, f.__module__) for (op, _), f in all_gradients().items() if f)
        return
    if package is cases:
        cases.all_cases()
        yield from ((c.op, c.build.__module__) for c in CASES)
        return
    if package is ggml_cpu.kernels:
        yield from ((op, k.module) for op in cpu_table().ops() for k in cpu_table().kernels(op))
        return
    table = ref_table if package is ggml_ref.ops else opencl_table
    yield from ((op, f.__module__) for op in table.ops() for f in table.kernels(op))


def family(module: str, package: ModuleType) -> str:
    """`ssm` for package.ssm and for package.ssm.ssm_scan"""
    inside, _, rest = module.partition(f"{package.__name__}.")
    assert inside == "", f"{module} is outside of {package.__name__}"
    return rest.split(".")[0]


FAMILY = {name: family(spec.builder.__module__, ggml_py.ops) for name, spec in OPS.items()}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_an_op_is_in_files_of_its_family(package: ModuleType) -> None:
    astray = {
        f"{op} is of the family {FAMILY[op]}, but {module} has it"
        for op, module in places(package)
        if op in FAMILY and family(module, package) != FAMILY[op]
    }
    assert sorted(astray) == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_what_holds_no_op_says_so(package: ModuleType) -> None:
    found = walk_packages(package.__path__, f"{package.__name__}.")
    public = {m.name for m in found if not m.ispkg and not m.name.split(".")[-1].startswith("_")}
    none = public - {module for _, module in places(package)}
    assert sorted(name for name in none if not declares_for_other_cpus(name)) == []


def declares_for_other_cpus(module: str) -> bool:
    """Whether a kernel of an op is there that this CPU has no instructions for."""
    source = inspect.getsource(import_module(module))
    return re.search(r'@kernel\(\s*"[A-Z]', source) is not None


def test_a_program_has_the_name_of_a_family() -> None:
    sources = files(ggml_opencl.kernels).iterdir()
    names = {entry.name.removesuffix(".cl") for entry in sources if entry.name.endswith(".cl")}
    assert sorted(n for n in names if not n.startswith("_") and n not in FAMILY.values()) == []


def test_every_family_has_its_builders_exported() -> None:
    hidden = [n for n, s in OPS.items() if not hasattr(ggml_py.ops, s.builder.__name__)]
    assert hidden == []
