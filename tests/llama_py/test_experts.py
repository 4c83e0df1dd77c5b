"""Mixture of experts: who is chosen, and how much each counts, as a loop over tokens says it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_py.backend.registry import device
from llama_py.blocks.activation import RELU, SILU, SWIGLU_OAI, Activation
from llama_py.blocks.experts import GATING, UNNORMED, Experts, ExpertSet, Routing, Weighing
from tests.support import blocks

N, N_FF, N_EXPERT, N_USED, N_TOKENS = 8, 6, 12, 3, 5
Values = NDArray[np.float64]


class Case:
    """Random weights, as a file has them and in NumPy."""

    def __init__(self, merged: bool = False, biases: bool = False) -> None:
        rng = np.random.default_rng(4)
        shapes = {"gate": (N_FF, N), "up": (N_FF, N), "down": (N, N_FF)}
        self.w = {part: rng.standard_normal((N_EXPERT, *ne)) for part, ne in shapes.items()}
        self.b = {part: rng.standard_normal((N_EXPERT, ne[0])) for part, ne in shapes.items()}
        self.router = rng.standard_normal((N_EXPERT, N))
        self.choice = rng.standard_normal(N_EXPERT)
        self.x = rng.standard_normal((N_TOKENS, N))
        self.biases, self.merged = biases, merged

    def file(self) -> dict[str, Values]:
        found = {"ffn_gate_inp.weight": self.router, "exp_probs_b.bias": self.choice}
        found |= {f"ffn_{part}_exps.weight": x for part, x in self.w.items()}
        if self.biases:
            found |= {f"ffn_{part}_exps.bias": x for part, x in self.b.items()}
        if self.merged:
            parts = [found.pop(f"ffn_{part}_exps.weight") for part in ("gate", "up")]
            found["ffn_gate_up_exps.weight"] = np.concatenate(parts, axis=1)
        return found

    def compute(
        self, gating: str = "softmax", groups: tuple[int, int] = (0, 0), **options: Any
    ) -> Values:
        hp: Any = SimpleNamespace(
            n_embd=N,
            n_expert=N_EXPERT,
            n_expert_groups=groups[0],
            n_group_used=groups[1],
            layers=[SimpleNamespace(n_expert_used=N_USED)],
        )
        w = blocks.weights({f"blk.0.{name}": x for name, x in self.file().items()})
        experts = Experts(
            w.layer(0),
            hp,
            N_FF,
            experts=ExpertSet(merged=True, biased=self.biases),
            routing=Routing(gating, bias="needed"),
            **options,
        )
        w.finish()
        w.place(lambda *_: device("ref"), {})
        g, x = blocks.builder(n_tokens=N_TOKENS), blocks.given("x", self.x)
        (found,) = blocks.run(g.gf, [(x, self.x)], experts(g, x, 0))
        return found[0, 0].astype(np.float64)

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
    found = case.compute(gating, groups, weighing=Weighing(norm_w, 2.5))
    expected = case.expected(gating, norm_w, 2.5, SILU, groups)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("act", "biases"), [(SILU, True), (RELU, False), (SWIGLU_OAI, True)])
def test_what_an_expert_computes(act: Activation, biases: bool) -> None:
    case = Case(biases=biases)
    found = case.compute(act=act, weighing=UNNORMED)
    expected = case.expected("softmax", False, 0, act, (0, 0))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_gate_and_up_in_one_tensor() -> None:
    np.testing.assert_allclose(Case(merged=True).compute(), Case().compute(), rtol=1e-5)
