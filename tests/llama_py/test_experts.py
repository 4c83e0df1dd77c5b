"""Mixture of experts: who is chosen, and how much each counts, as a loop over tokens says it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from llama_py.models._ffn import GATING, RELU, SILU, SWIGLU_OAI, Activation, FeedForward
from numpy.typing import NDArray

from ggml_py.backend import get_tensor, set_tensor
from ggml_py.graph import Graph
from ggml_py.registry import device
from ggml_py.sched import Scheduler
from ggml_py.tensor import FLAG_INPUT, Tensor
from ggml_py.types import F32
from llama_py.weights import Layer, Linear

N, N_FF, N_EXPERT, N_USED, N_TOKENS = 8, 6, 12, 3, 5
Values = NDArray[np.float64]


class Experts(FeedForward):
    """Only the experts of a graph."""

    def __init__(self, n_groups: int, n_group_used: int) -> None:
        self.gf = Graph()
        self.expand = self.gf.build_forward_expand
        self.n_tokens = N_TOKENS
        self.hparams: Any = SimpleNamespace(
            n_expert_groups=n_groups, n_group_used=n_group_used, n_expert_used=lambda il: N_USED
        )

    def build(self) -> None:
        """There is nothing around them."""


def leaf(name: str, values: Values, leafs: dict[str, tuple[Tensor, Values]]) -> Tensor:
    t = Tensor(F32, values.shape[::-1], name=name)
    t.flags |= FLAG_INPUT
    leafs[name] = t, values
    return t


class Case:
    """Random weights, and the same weights in NumPy."""

    def __init__(self, merged: bool = False, biases: bool = False) -> None:
        rng = np.random.default_rng(4)
        self.leafs: dict[str, tuple[Tensor, Values]] = {}
        shapes = {"gate": (N_FF, N), "up": (N_FF, N), "down": (N, N_FF)}
        self.w = {part: rng.standard_normal((N_EXPERT, *ne)) for part, ne in shapes.items()}
        self.b = {part: rng.standard_normal((N_EXPERT, ne[0])) for part, ne in shapes.items()}
        self.router = rng.standard_normal((N_EXPERT, N))
        self.choice = rng.standard_normal(N_EXPERT)
        self.x = rng.standard_normal((N_TOKENS, N))
        self.biases = biases
        self.layer: Any = Layer(0)
        self.layer.ffn_gate_inp = Linear(leaf("router", self.router, self.leafs))
        self.layer.exp_probs_b = leaf("choice", self.choice, self.leafs)
        if merged:
            both = np.concatenate([self.w["gate"], self.w["up"]], axis=1)
            self.layer.ffn_gate_up_exps = Linear(leaf("gate_up", both, self.leafs))
        for part in ("down",) if merged else ("gate", "up", "down"):
            bias = leaf(f"{part}_b", self.b[part], self.leafs) if biases else None
            matrix = Linear(leaf(part, self.w[part], self.leafs), bias)
            setattr(self.layer, f"ffn_{part}_exps", matrix)

    def compute(self, groups: tuple[int, int] = (0, 0), **options: Any) -> Values:
        graph = Experts(*groups)
        x = leaf("x", self.x, self.leafs)
        result = graph.expand(graph.build_moe_ffn(x, self.layer, 0, **options))
        plan = Scheduler([device("ref")]).plan(graph.gf)
        for t, values in self.leafs.values():
            set_tensor(t, values.astype(np.float32))
        plan.run()
        return get_tensor(result)[0, 0].astype(np.float64)

    def linear(self, part: str, expert: int, x: Values) -> Values:
        y = self.w[part][expert] @ x
        return y + self.b[part][expert] if self.biases else y

    def expected(
        self, gating: str, norm_w: bool, w_scale: float, act: Activation, groups: tuple[int, int]
    ) -> Values:
        """Token by token, expert by expert."""
        out = np.zeros((N_TOKENS, N))
        for t, x in enumerate(self.x):
            probs = probabilities(gating, self.router @ x)
            chosen = best(probs + self.choice, groups)
            weight = probs[chosen]
            if gating == "softmax_weight":
                weight = probabilities("softmax", weight)
            weight = weight / weight.sum() if norm_w else weight
            for expert, part in zip(chosen, weight * (w_scale or 1), strict=True):
                gate, up = self.linear("gate", expert, x), self.linear("up", expert, x)
                out[t] += part * self.linear("down", expert, gated(act, gate, up))
        return out


def probabilities(gating: str, x: Values) -> Values:
    found: dict[str, Values] = {
        "softmax": np.exp(x) / np.exp(x).sum(),
        "sigmoid": 1 / (1 + np.exp(-x)),
        "softmax_weight": x,
        "sqrt_softplus": np.sqrt(np.log1p(np.exp(x))),
    }
    return found[gating]


def best(scores: Values, groups: tuple[int, int]) -> NDArray[np.int64]:
    """The N_USED best experts, of the groups whose two best experts have the largest sums."""
    n, used = groups
    if n > 1:
        by_group = scores.reshape(n, -1)
        keep = np.argsort(-np.sort(by_group)[:, -2:].sum(axis=1))[:used]
        masked = np.full_like(by_group, -np.inf)
        masked[keep] = by_group[keep]
        scores = masked.ravel()
    return np.argsort(-scores)[:N_USED]


def gated(act: Activation, gate: Values, up: Values) -> Values:
    if act is RELU:
        return np.maximum(gate, 0) * up
    if act is SWIGLU_OAI:
        gate = np.minimum(gate, 7)
        return gate / (1 + np.exp(-1.702 * gate)) * (np.clip(up, -7, 7) + 1)
    return gate / (1 + np.exp(-gate)) * up


@pytest.mark.parametrize("groups", [(0, 0), (4, 2), (3, 1)])
@pytest.mark.parametrize("gating", list(GATING))
def test_who_is_chosen(gating: str, groups: tuple[int, int]) -> None:
    norm_w = gating != "softmax_weight"
    case = Case()
    found = case.compute(groups, gating=gating, norm_w=norm_w, w_scale=2.5)
    expected = case.expected(gating, norm_w, 2.5, SILU, groups)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("act", "biases"), [(SILU, True), (RELU, False), (SWIGLU_OAI, True)])
def test_what_an_expert_computes(act: Activation, biases: bool) -> None:
    case = Case(biases=biases)
    found = case.compute(act=act, norm_w=False)
    expected = case.expected("softmax", False, 0, act, (0, 0))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_gate_and_up_in_one_tensor() -> None:
    np.testing.assert_allclose(Case(merged=True).compute(), Case().compute(), rtol=1e-5)
