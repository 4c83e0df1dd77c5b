"""Content of helpers, by which kernels share what they have typed."""

from __future__ import annotations

from ggml_cpu.shares import content


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
