"""Small graphs that backends may run as one step, computed with and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggml_py import ops
from ggml_py.backend import CompileOptions, Device, get_tensor, set_tensor
from ggml_py.fusion import FusedNodes
from ggml_py.graph import Graph
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from ggml_py.types import F16, GGMLType
from tests.support.devices import given

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


def name(step: Tensor | FusedNodes[Any]) -> str:
    nodes = step.match.nodes if isinstance(step, FusedNodes) else [step]
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


def product_and_sum(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return ops.add(ops.mul_mat(w, x), y)


def sum_and_product(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return ops.add(y, ops.mul_mat(w, x))


def product_and_its_columns(w: Tensor, x: Tensor) -> Tensor:
    """Of a square matrix: the sum must not be written over the columns."""
    x = ops.neg(x)
    return ops.add(ops.mul_mat(w, x), x)


def product_to_rows(w: Tensor, x: Tensor, ids: Tensor, cache: Tensor, type: GGMLType) -> Tensor:
    """By way of heads of four; the rows of `ids` sorted say which."""
    product = ops.mul_mat(w, x)
    n, m, _, _ = product.ne
    heads = ops.reshape(product, 4, n // 4, m)
    rows = ops.view(heads, (n, m), (heads.nb[2] // 4,), 0)
    return ops.set_rows(ops.cast(cache, type), rows, ops.argsort(ids, "asc"))


def gated_unit(unit: str, w: Tensor, v: Tensor, x: Tensor) -> Tensor:
    gated: Callable[[Tensor, Tensor], Tensor] = getattr(ops, f"{unit}_split")
    value = ops.mul_mat(v, x)
    return gated(ops.mul_mat(w, x), value)


def gated_experts(w: Tensor, v: Tensor, x: Tensor, scores: Tensor, n_used: int) -> Tensor:
    ids = ops.argsort_top_k(scores, n_used)
    return ops.swiglu_split(ops.mul_mat_id(w, x, ids), ops.mul_mat_id(v, x, ids))


def turned(x: Tensor, tokens: Tensor, factors: Tensor | None = None, **more: Any) -> Tensor:
    """ROPE of 32 channels, at positions in the order of `tokens`."""
    yarn = {"ext_factor": 0.5, "attn_factor": 1.1, "beta_fast": 32.0, "beta_slow": 1.0}
    how = {"n_dims": 32, "mode": 2, "n_ctx_orig": 64, "freq_base": 1e4, "freq_scale": 0.5, **yarn}
    return ops.rope_ext(x, ops.argsort(tokens, "asc"), factors, **{**how, **more})


def heads_to_rows(y: Tensor, tokens: Tensor, cache: Tensor, type: GGMLType = F16) -> Tensor:
    n, n_head, n_tokens, _ = y.ne
    rows = ops.view(y, (n * n_head, n_tokens), (n * n_head,), 0)
    return ops.set_rows(ops.cast(cache, type), rows, ops.argsort(tokens, "desc"))


def normed_and_turned(x: Tensor, w: Tensor, tokens: Tensor, **more: Any) -> Tensor:
    return turned(norm_and_weight(x, w), tokens, **more)


def mean_weight_and_bias(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return ops.add(ops.mul(ops.norm(x, 1e-5), w), b)


def l2_norm_and_gate(x: Tensor, z: Tensor) -> Tensor:
    return ops.mul(ops.l2_norm(x, 1e-5), ops.silu(z))


def product_in_heads(w: Tensor, x: Tensor, b: Tensor) -> Tensor:
    """What follows has another shape than the product."""
    product = ops.mul_mat(w, x)
    heads = ops.reshape(product, 4, product.ne[0] // 4, product.ne[1])
    return ops.mul(ops.softplus(ops.add(heads, b)), b)


def router(logits: Tensor, table: Tensor, n_used: int, bias: Tensor | None = None) -> Tensor:
    """Weights of the best experts times what a table has for these."""
    n_expert, n_tokens, *_ = logits.ne
    probs = ops.soft_max(logits) if bias is None else ops.sigmoid(logits)
    chosen = ops.argsort_top_k(probs if bias is None else ops.add(probs, bias), n_used)

    def of_chosen(values: Tensor) -> Tensor:
        rows = ops.get_rows(ops.reshape(values, 1, n_expert, n_tokens), chosen)
        return ops.reshape(rows, n_used, n_tokens)

    weights = of_chosen(probs)
    weights = ops.div(weights, ops.clamp(ops.sum_rows(weights), 1e-4, float("inf")))
    return ops.mul(weights, of_chosen(table))
