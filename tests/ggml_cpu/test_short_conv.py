"""The short convolution with its states as one step: one pass over the channels of few tokens, or
by way of tables. Both give what the single nodes give, and leave the same inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_cpu.backend import CPUDevice
from ggml_cpu.fused import _few_tokens
from ggml_py import ops
from ggml_py.backend import CompileOptions, get_tensor, registry, set_tensor
from ggml_py.graph import Graph
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from ggml_py.types import F32
from tests.support.fused_graphs import name

Sizes = tuple[int, int, int, int, int]  # d_conv, channels, tokens, sequences, times kept
CELLS, HEAD = 5, 1


def kept_in(cache: Tensor, window: Tensor, slot: int, flat: bool) -> Tensor:
    """The rows for what is kept `slot` tokens back; flat: [size, B], else [d_conv - 1, C, B]."""
    size, first = cache.ne[0], (slot * CELLS + HEAD) * cache.ne[0]
    width, channels, n_seqs, _ = window.ne
    if flat:
        return ops.view(cache, (size, n_seqs), (size,), first)
    return ops.view(cache, (width, channels, n_seqs), (width, size), first)


def graph_of(sizes: Sizes, flat: bool) -> tuple[Graph, list[Tensor], Tensor, Tensor]:
    """Leaves, the cache and the result: the input is the result of a node, so that the
    convolution may take its memory."""
    d_conv, channels, n_tokens, n_seqs, n_kept = sizes
    width = d_conv - 1
    given = Tensor(F32, (channels, n_tokens, n_seqs))
    weight, state = Tensor(F32, (d_conv, channels)), Tensor(F32, (width * channels, n_seqs))
    cache = Tensor(F32, (width * channels, CELLS * n_kept))
    before = ops.reshape(ops.scale(state, 2.0), width, channels, n_seqs)
    joined = ops.concat(before, ops.transpose(ops.scale(given, 0.5)), 0)
    graph = Graph()
    for slot in range(n_kept):
        start = max(0, n_tokens - slot)
        window = ops.view(joined, (width, channels, n_seqs), offset=start)
        graph.build_forward_expand(ops.cpy(window, kept_in(cache, window, slot, flat)))
    conv = ops.ssm_conv(joined, weight)
    y = ops.silu(conv) if flat else ops.silu(ops.reshape(conv, channels, n_tokens * n_seqs))
    y.flags |= FLAG_OUTPUT
    graph.build_forward_expand(y)
    return graph, [given, weight, state, cache], cache, y


def computed(
    sizes: Sizes, flat: bool, device: Any, fuse: bool
) -> tuple[list[NDArray[Any]], list[str], list[str]]:
    """The result and the cache; what was run, and by which kernels."""
    graph, leaves, cache, y = graph_of(sizes, flat)
    plan = Scheduler([device], CompileOptions(fuse=fuse)).plan(graph)
    rng = np.random.default_rng(5)
    for t in leaves:
        set_tensor(t, rng.standard_normal(t.ne[::-1]).astype(np.float32))
    kernels: list[str] = []
    if isinstance(device, CPUDevice):
        with device.profiling() as times:
            plan.run()
        kernels = [t.kernel for t in times]
    else:
        plan.run()
    steps = [name(s) for split in plan.splits for s in split.steps]
    return [get_tensor(cache), get_tensor(y)], steps, kernels


def check(sizes: Sizes, flat: bool) -> list[str]:
    """Kernels that ran."""
    device = registry.device("cpu")
    device.set_threads(2)
    plain, _, _ = computed(sizes, flat, registry.device("ref"), False)
    merged, steps, kernels = computed(sizes, flat, device, True)
    assert "CONCAT+CPY+SSM_CONV+SILU" in steps
    np.testing.assert_array_equal(plain[0], merged[0])
    np.testing.assert_allclose(plain[1].ravel(), merged[1].ravel(), rtol=1e-5, atol=1e-6)
    return kernels


@pytest.mark.parametrize("n_kept", [1, 3])
@pytest.mark.parametrize("n_seqs", [1, 3])
@pytest.mark.parametrize("n_tokens", [1, 2, 5, _few_tokens.FEW])
def test_few_tokens(n_tokens: int, n_seqs: int, n_kept: int) -> None:
    channels = _few_tokens.SPAN + 2 * _few_tokens.LANES
    kernels = check((4, channels, n_tokens, n_seqs, n_kept), flat=True)
    assert "conv_few" in kernels and "conv_tables" not in kernels


@pytest.mark.parametrize("n_tokens", [1, 3, _few_tokens.FEW + 1])
@pytest.mark.parametrize("n_kept", [1, 3])
def test_rows_of_channels(n_tokens: int, n_kept: int) -> None:
    """Caches and result of another shape."""
    kernels = check((4, 64, n_tokens, 2, n_kept), flat=False)
    assert ("conv_few" in kernels) == (n_tokens <= _few_tokens.FEW)


OTHERS = [(3, 64, 1, 2, 1), (4, 66, 1, 2, 1), (4, 64, 9, 2, 1), (4, 64, 1, 2, 8)]


@pytest.mark.parametrize("sizes", OTHERS)
def test_what_it_does_not_take_goes_by_tables(sizes: Sizes) -> None:
    kernels = check(sizes, flat=True)
    assert "conv_tables" in kernels and "conv_few" not in kernels


def test_tokens_give_the_same_alone_and_with_others() -> None:
    """The inputs that one step leaves are what the next one starts from: bit for bit."""

    def run(n_tokens: int) -> NDArray[Any]:
        device = registry.device("cpu")
        graph, (given, weight, state, cache), _, y = graph_of((4, 64, n_tokens, 1, 1), flat=True)
        plan = Scheduler([device], CompileOptions(fuse=True)).plan(graph)
        rng = np.random.default_rng(5)
        set_tensor(weight, rng.standard_normal((64, 4)).astype(np.float32))
        set_tensor(state, rng.standard_normal((1, 192)).astype(np.float32))
        x = rng.standard_normal((24, 64)).astype(np.float32)
        found = []
        for start in range(0, 24, n_tokens):
            set_tensor(given, x[None, start : start + n_tokens])
            plan.run()
            found.append(get_tensor(y)[0, 0])
            set_tensor(state, get_tensor(cache)[0, 0, HEAD][None] / 2)  # the graph doubles it
        return np.concatenate(found)

    whole = run(24)
    for n_tokens in (1, 3, 8, 12):
        np.testing.assert_array_equal(whole, run(n_tokens))
