"""Calls at any depth below a function with a large chunk map no memory."""

from __future__ import annotations

import sys

import pytest

from ggml_py.machine.frames import with_large_chunk

CALLS = 200


def faults_by_depth(depth: int) -> list[int]:
    """Return the page faults of many calls at each depth of a recursion."""
    import resource

    def call() -> None:
        pass

    found: list[int] = []

    def down(n: int) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(CALLS):
            call()
        found.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        if n:
            down(n - 1)

    down(depth)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="counts page faults")
def test_no_depth_maps_memory_for_each_call() -> None:
    assert max(with_large_chunk(faults_by_depth)(300)) < CALLS / 2


def test_the_function_is_unchanged() -> None:
    def add(a: int, b: int = 2, *more: int) -> int:
        return a + b + sum(more)

    assert with_large_chunk(add)(1, 2, 3) == 6 and add(1) == 3
