"""Which compiling process gets which kernel."""

from __future__ import annotations

from ggml_cpu.kernel import REGISTRY
from ggml_cpu.shares import KernelShares, find_reached
from ggml_cpu.table import every_kernel
from tests.ggml_cpu.fake_kernels import fake


def test_each_worker_keeps_to_what_it_has_typed() -> None:
    """Kernels of two weight types share helpers within a type; the largest come first."""
    every_kernel()
    ways = ("mul_mat_{}_panels", "mul_mat_{}_panel", "mul_mat_id_{}_panels", "mul_mat_id_{}_panel")
    types = ("q4_K", "q6_K")
    kernels = [REGISTRY.kernels[way.format(name)] for name in types for way in ways]
    shares = KernelShares()
    shares.ask(kernels)
    taken: list[list[str]] = [[], []]
    sizes: list[int] = []
    for i in range(len(kernels)):
        kernel = shares.take(i % 2)
        assert kernel is not None
        taken[i % 2].append(kernel.first)
        sizes.append(sum(find_reached(kernel).values()))
    assert shares.take(0) is None
    assert sorted(map(set, taken), key=min) == [{name} for name in types]
    assert all(sizes[i] >= sizes[i + 2] for i in range(len(sizes) - 2))


def test_what_was_asked_for_comes_first() -> None:
    a, b, c = (fake(name, value) for name, value in (("a", 1), ("b", 2), ("c", 3)))
    shares = KernelShares()
    shares.ask([a])
    shares.follow([a, b])  # the first of them once
    assert [shares.begin(i) for i in range(3)] == [True, True, False]
    assert [shares.take(0), shares.take(1)] == [a, b]
    shares.follow([b, c])
    assert shares.clear() == {a, b}
    assert [shares.take(0), shares.take(1)] == [None, None] and not shares.at_work()
