"""Builders of models can be read: few parameters, rules in place of switches, one class a name."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from llama_py.models.trunks.architecture import Architecture
from llama_py.models.trunks.decoder import Layer
from llama_py.models.trunks.nextn import DraftingDecoder

ROOT = Path(__file__).parents[2] / "llama_py"
ROOMS = ("batch", "blocks", "graph", "hparams", "memory", "models")
MOST = 9  # parameters, `self` too
SWITCHES = {"reads_images", "in_slots", "has_trunk"}  # it only shrinks


def found(kind: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Every definition of a kind in the rooms that build graphs, with its place."""
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, kind):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", node


def n_parameters(node: ast.AST) -> int:
    assert isinstance(node, ast.FunctionDef)
    a = node.args
    return len([*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))])


def test_builders_have_few_parameters() -> None:
    counts = {where: n_parameters(node) for where, node in found(ast.FunctionDef)}
    assert {where: n for where, n in counts.items() if n > MOST} == {}


def test_a_class_name_means_one_thing() -> None:
    names = Counter(node.name for _, node in found(ast.ClassDef) if isinstance(node, ast.ClassDef))
    assert [name for name, n in names.items() if n > 1] == []


def test_switches_of_architectures_only_shrink() -> None:
    kinds = Architecture, DraftingDecoder, Layer
    declared = {name for kind in kinds for name, v in vars(kind).items() if isinstance(v, bool)}
    fields = {f for f, kind in Layer.__annotations__.items() if "bool" in kind}
    assert (declared | fields) - {"post_ffn_il"} == SWITCHES
