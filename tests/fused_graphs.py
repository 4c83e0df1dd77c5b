"""Small graphs that backends may run as one step, computed with and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggml_py import ops
from ggml_py.backend import CompileOptions, Device, get_tensor, set_tensor
from ggml_py.fusion import Fused
from ggml_py.graph import Graph
from ggml_py.sched import Scheduler
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from tests.devices import given

Build = Callable[..., Tensor]
Shapes = dict[str, tuple[int, ...]]


def compute(
    build: Build, shapes: Shapes, device: Device, fuse: bool
) -> tuple[NDArray[Any], list[str]]:
    """The result, and what was run: ops, or several of them as one step."""
    rng = np.random.default_rng(1)
    leafs = {leaf: given(*ne, name=leaf) for leaf, ne in shapes.items()}
    y = build(**leafs)
    y.flags |= FLAG_OUTPUT
    graph = Graph()
    graph.build_forward_expand(y)
    plan = Scheduler([device], CompileOptions(fuse=fuse)).plan(graph)
    for t in leafs.values():
        set_tensor(t, rng.standard_normal(t.ne[::-1]).astype(np.float32))
    plan.run()
    (split,) = plan.splits
    return get_tensor(y), [name(s) for s in split.steps]


def name(step: Tensor | Fused[Any]) -> str:
    nodes = step.match.nodes if isinstance(step, Fused) else [step]
    return "+".join(dict.fromkeys(t.op for t in nodes))


def error(build: Build, shapes: Shapes, device: Device, steps: list[str]) -> float:
    """How far what runs in these steps is from what runs node by node, relative to the largest
    value.
    """
    plain, nodes = compute(build, shapes, device, fuse=False)
    merged, found = compute(build, shapes, device, fuse=True)
    assert found == steps, found
    assert len(nodes) > len(steps) or nodes == steps
    return float(np.abs(plain - merged).max() / np.abs(plain).max())


def expert_sum(x: Tensor, w: Tensor) -> Tensor:
    product = ops.mul(ops.scale(x, 2.0), w)
    n, n_used, n_tokens, _ = product.ne
    parts = [ops.view(product, (n, n_tokens), (n * n_used,), e * n) for e in range(n_used)]
    total = parts[0]
    for part in parts[1:]:
        total = ops.add(total, part)
    return total


def norm_and_weight(x: Tensor, w: Tensor) -> Tensor:
    return ops.mul(ops.rms_norm(ops.neg(x), 1e-5), w)


def norm_weight_and_residual(x: Tensor, w: Tensor) -> Tensor:
    return ops.add(ops.mul(ops.rms_norm(ops.neg(x), 1e-5), w), x)


def norm_and_factor(x: Tensor) -> Tensor:
    return ops.scale(ops.rms_norm(x, 1e-5), 0.25)


def norm_read_twice(x: Tensor, w: Tensor) -> Tensor:
    norm = ops.rms_norm(x, 1e-5)
    return ops.add(ops.mul(norm, w), norm)


def conv_and_silu(x: Tensor, c: Tensor) -> Tensor:
    return ops.silu(ops.ssm_conv(ops.neg(x), c))


def conv_reshaped_and_silu(x: Tensor, c: Tensor) -> Tensor:
    y = ops.ssm_conv(x, c)
    return ops.silu(ops.reshape(y, y.ne[0], y.ne[1] * y.ne[2]))


def conv_bias_and_silu(x: Tensor, c: Tensor, b: Tensor) -> Tensor:
    return ops.silu(ops.add(ops.ssm_conv(x, c), b))
