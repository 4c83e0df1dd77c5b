"""What has no annotations, and so is left out by mypy: what Numba compiles or calls, no more."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ggml_cpu

ROOT = Path(ggml_cpu.__file__).parent
DECORATORS = {"fn", "routine", "panel_function", "kernel", "inlined", "intrinsic", "lower_builtin"}
KERNEL = ("ith", "nth")  # its last arguments
# First arguments of what Numba calls: to lower an operator, to type it, to make a type's model.
HOOKS = {("context", "builder"), ("self", "args"), ("self", "manager")}


def is_native(function: ast.FunctionDef) -> bool:
    """Whether it is a kernel, a helper or of the vocabulary, by its decorator or arguments."""
    names = tuple(a.arg for a in function.args.args)
    calls = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    known = any(isinstance(d, ast.Name) and d.id in DECORATORS for d in calls)
    return known or names[-2:] == KERNEL or names[:2] in HOOKS


def left_out(tree: ast.AST) -> Iterator[str]:
    """Functions of the host without annotations; what is inside a native one belongs to it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            arguments = [a for a in node.args.args if a.arg != "self"]
            bare = node.returns is None and not any(a.annotation for a in arguments)
            if bare and is_native(node):
                continue
            if bare:
                yield node.name
        yield from left_out(node)


def test_functions_of_the_host_have_annotations() -> None:
    paths = sorted(ROOT.rglob("*.py"))
    found = {path: list(left_out(ast.parse(path.read_text("utf-8")))) for path in paths}
    assert len(paths) > 100
    assert [f"{p.relative_to(ROOT)}: {name}" for p in paths for name in found[p]] == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def when(node): ...", ["when"]),
        ("def when(node: Tensor) -> str: ...", []),
        ("def make() -> None:\n    def scratch(node, nth): ...", ["scratch"]),
        ("@fn\ndef helper(x):\n    def inner(y): ...", []),
        ("@kernel('ADD')\ndef add(p, ith, nth): ...", []),
        ("def both(p, ith, nth): ...", []),
    ],
)
def test_what_is_found(source: str, found: list[str]) -> None:
    assert list(left_out(ast.parse(source))) == found
