"""Merged steps give what the single nodes give, and merge only where that is safe."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ggml_py import ops, registry
from ggml_py.backend import CompileOptions, get_tensor, set_tensor
from ggml_py.graph import Graph
from ggml_py.sched import Scheduler
from ggml_py.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor
from ggml_py.types import F32

Build = Callable[..., Tensor]


def source(name: str, *ne: int) -> Tensor:
    t = Tensor(F32, ne, name=name)
    t.flags |= FLAG_INPUT
    return t


def compute(build: Build, shapes: dict[str, tuple[int, ...]], fuse: bool) -> tuple[np.ndarray, int]:
    """The result, and the number of steps that were run."""
    rng = np.random.default_rng(1)
    leafs = {name: source(name, *ne) for name, ne in shapes.items()}
    y = build(**leafs)
    y.flags |= FLAG_OUTPUT
    graph = Graph()
    graph.build_forward_expand(y)
    options = CompileOptions(fuse=fuse)
    plan = Scheduler([registry.device("cpu")], options).plan(graph)
    for t in leafs.values():
        set_tensor(t, rng.standard_normal(t.ne[::-1]).astype(np.float32))
    plan.run()
    return get_tensor(y), len(plan.splits[0].program.steps)  # type: ignore[attr-defined]


def moe(x: Tensor, w: Tensor) -> Tensor:
    product = ops.mul(ops.scale(x, 2.0), w)
    n, n_used, n_tokens, _ = product.ne
    parts = [ops.view(product, (n, n_tokens), (n * n_used,), e * n) for e in range(n_used)]
    total = parts[0]
    for part in parts[1:]:
        total = ops.add(total, part)
    return total


def norm_and_weight(x: Tensor, w: Tensor) -> Tensor:
    return ops.mul(ops.rms_norm(ops.neg(x), 1e-5), w)


def norm_and_factor(x: Tensor) -> Tensor:
    return ops.scale(ops.rms_norm(x, 1e-5), 0.25)


CASES: dict[str, tuple[Build, dict[str, tuple[int, ...]], int]] = {
    "norm and weight": (norm_and_weight, {"x": (33, 5), "w": (33,)}, 2),
    "norm and factor": (norm_and_factor, {"x": (64, 7)}, 1),
    "sum of experts": (moe, {"x": (50, 4, 9), "w": (1, 4, 9)}, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_merged(name: str) -> None:
    build, shapes, expected = CASES[name]
    plain, _ = compute(build, shapes, fuse=False)
    merged, n_steps = compute(build, shapes, fuse=True)
    assert n_steps == expected
    assert np.abs(plain - merged).max() <= 1e-6 * np.abs(plain).max()


def test_a_result_with_two_readers_stays() -> None:
    def build(x: Tensor, w: Tensor) -> Tensor:
        norm = ops.rms_norm(x, 1e-5)
        return ops.add(ops.mul(norm, w), norm)

    plain, n_plain = compute(build, {"x": (32, 3), "w": (32,)}, fuse=False)
    merged, n_merged = compute(build, {"x": (32, 3), "w": (32,)}, fuse=True)
    assert n_plain == n_merged == 3
    assert np.array_equal(plain, merged)


@pytest.mark.parametrize("n_tokens", [1, 2, 5, 40])
def test_a_hybrid_model_is_the_same_with_and_without(n_tokens: int) -> None:
    """Convolutions, delta nets, norms and experts of the demo model, over a prompt and a step."""
    from importlib.resources import files

    import llama_py

    model = llama_py.load(str(files("llama_py.data") / "demo.gguf"))
    prompt = [7 * i % 2000 for i in range(1, n_tokens + 1)]
    found = []
    for fuse in (False, True):
        ctx = model.context(n_ctx=256, fuse=fuse)
        found.append([ctx.decode(prompt, logits="all"), ctx.decode([11]), ctx.decode([12, 13])])
    for plain, merged in zip(*found, strict=True):
        error = ((plain - merged) ** 2).sum() / (plain**2).sum()
        assert error < 1e-6
