"""The guide to fused steps: its files are there, and a step made by it is used and right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ggml_cpu import vocabulary as v
from ggml_cpu.fused import fusions
from ggml_cpu.fusion import fuse
from ggml_cpu.kernel import kernel
from ggml_cpu.step import Step
from ggml_py import ops
from ggml_py.backend import registry
from ggml_py.fusion import f32_rows, in_place
from ggml_py.fusion.pattern import Match, Pattern
from ggml_py.tensor import Tensor
from ggml_py.types import F16
from tests.support.fused_graphs import compute, error

ROOT = Path(__file__).parents[2]


def no_bias(m: Match) -> str:
    return "" if m["y"].param("bias") == 0 else f"needs no bias; got {m['y'].param('bias')}"


SCALED_SQUARE = Pattern(
    """
    a = SQR(x)
    y = SCALE(a)
    """,
    no_bias,
)


@kernel()
def scaled_square(p, ith, nth):
    """dst = src0^2 * scale, by way of the scratch; dense."""
    start, stop = v.split(v.ne(p, 0, 0) * v.ne(p, 0, 1), ith, nth)
    for i in range(start, stop):
        x = v.ld_f32(v.data(p, 1) + 4 * i)
        v.st_f32(v.shared(p) + 4 * i, x * x)
        v.st_f32(v.data(p, 0) + 4 * i, v.ld_f32(v.shared(p) + 4 * i) * v.op_f32(p, 0))


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The step in the backend's table, for the time of a test."""
    monkeypatch.setattr(fusions(), "rules", [*fusions().rules])

    @fuse(SCALED_SQUARE, when=f32_rows("x"), over=in_place("x"), scratch=lambda m: m["x"].nbytes)
    def launch(m: Match) -> list[Step]:
        return [Step(scaled_square, m["y"], (m["y"], m["x"]), scratch=m.scratch)]

    yield


def scaled(x: Tensor) -> Tensor:
    return ops.scale(ops.sqr(ops.neg(x)), 3.0)


def test_it_is_used_and_equal_to_the_nodes() -> None:
    shapes = {"x": (37, 5)}
    assert error(scaled, shapes, registry.device("cpu"), ["NEG", "SQR+SCALE"]) <= 1e-6


@pytest.mark.parametrize("why", ["bias", "f16"])
def test_what_its_conditions_refuse_runs_node_by_node(why: str) -> None:
    def build(x: Tensor) -> Tensor:
        if why == "f16":
            return ops.scale(ops.sqr(ops.cast(x, F16)), 3.0)
        return ops.scale(ops.sqr(x), 3.0, 1.0)

    _, steps = compute(build, {"x": (37, 5)}, registry.device("cpu"), fuse=True)
    assert steps == (["SQR", "SCALE"] if why == "bias" else ["CPY", "SQR", "SCALE"])


def test_the_guide_names_files_that_are_there() -> None:
    text = (ROOT / "backends" / "README.md").read_text(encoding="utf-8")
    section = text.split("## Add a fused step")[1].split("\n## ")[0]
    named = re.findall(r"`([\w/]+/[\w/.]+\.(?:py|cl))`", section)
    assert len(named) >= 6
    for path in named:
        assert (ROOT / re.sub(r"\bF\.", "experts.", path)).exists(), path
