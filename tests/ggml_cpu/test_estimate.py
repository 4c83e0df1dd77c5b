"""How long kernels will take: from their sizes, then from those that are done."""

from __future__ import annotations

import pytest

from ggml_cpu import estimate
from ggml_cpu.estimate import PER_BYTE, START, Estimate
from ggml_cpu.fused import fusions
from ggml_cpu.kernel import REGISTRY
from ggml_cpu.shares import content
from ggml_cpu.table import every_kernel


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [7.0]
    monkeypatch.setattr(estimate, "monotonic", lambda: now[0])
    return now


def test_it_follows_what_was_seen(now: list[float]) -> None:
    every_kernel(), fusions()
    kernels = [REGISTRY.kernels[n] for n in ("flash_attn_rows_f16", "add_f32_f32", "mul_f32_f32")]
    left = Estimate(kernels, 2)
    first = left.left
    assert 0.5 < first < 10
    now[0] += START + 100.0  # a machine that is much slower than was thought
    left.done(kernels[0])
    assert 2 < left.left < 100
    left.done(kernels[1])
    left.done(kernels[2])
    assert left.left == 0.0


def test_two_processes_take_half_as_long(now: list[float]) -> None:
    every_kernel()
    kernels = [REGISTRY.kernels["add_f32_f32"]]
    one, two = (Estimate(kernels, n).left - START for n in (1, 2))
    assert one == pytest.approx(2 * two) and one > 1000 * PER_BYTE


def made(width: int, scale: float, helper: object):  # type: ignore[no-untyped-def]
    def f(x):  # type: ignore[no-untyped-def]
        return helper(x) * width * scale  # type: ignore[operator]

    return f


def test_helpers_of_the_same_content() -> None:
    inner, again = made(1, 2.0, abs), made(1, 2.0, abs)
    assert content(inner) == content(again)
    assert content(made(4, 2.0, inner)) == content(made(4, 2.0, again))
    others = [
        made(True, 2.0, abs), made(1, 2, abs), made(1, 2.0, max), made(2, 2.0, abs),
        made(1, -0.0, abs), made(1, 0.0, abs), made(1, 2.0, inner),
    ]  # fmt: skip
    assert len({content(f) for f in [inner, *others]}) == 1 + len(others)


def test_a_helper_that_calls_itself() -> None:
    def f(x: int) -> int:
        return f(x - 1)

    assert content(f) == content(f)
