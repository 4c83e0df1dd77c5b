"""Replacement policies: scores of cached experts. Experts with the lowest scores are evicted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Scores = npt.NDArray[np.floating]
Policy = Callable[["Usage", Numbers], Scores]
HALF_LIFE = 64  # passes after which a use counts half


class Usage:
    """Uses of all experts, whether cached or not. A pass is one graph, from its first layer on.

    layers     layer of each expert, i64 [n]
    last       time of its last use, i64 [n]; each layer of a pass is one time
    passes     pass of its last use, i64 [n]
    counts     uses [n], each halved every HALF_LIFE passes until the last one
    now, this  the current time and pass;  layer  the layer that runs
    """

    def __init__(self, layers: Numbers) -> None:
        n = layers.size
        self.layers, self.n_layers = layers, int(layers.max(initial=0)) + 1
        self.last, self.passes = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.counts = np.zeros(n)
        self.now, self.this, self.layer = 0, 0, 0

    def note(self, experts: Numbers, layer: int, is_new_pass: bool) -> None:
        """Count one use of some experts of a layer."""
        self.now += 1
        self.this += is_new_pass
        self.layer = layer
        self.counts[experts] = self.decayed_counts(experts) + 1
        self.last[experts], self.passes[experts] = self.now, self.this

    def decayed_counts(self, experts: Numbers) -> Scores:
        """Return the experts' uses, with older uses counting less."""
        ages = (self.this - self.passes[experts]) / HALF_LIFE
        return self.counts[experts] * 0.5**ages

    def distance(self, experts: Numbers) -> Numbers:
        """Return the number of layers until the experts' layers run again, 1 .. n_layers."""
        return (self.layers[experts] - self.layer - 1) % self.n_layers + 1


def least_recently_used(usage: Usage, experts: Numbers) -> Scores:
    return usage.last[experts].astype(np.float64)


def least_frequently_used(usage: Usage, experts: Numbers) -> Scores:
    return usage.decayed_counts(experts) - 1e-3 * usage.distance(experts) / usage.n_layers


def least_stale(usage: Usage, experts: Numbers) -> Scores:
    """Score by the pass of the last use; in a pass, layers that run again last go first.

    Source: Least-Stale of arXiv:2602.03921, as its abstract describes it.
    """
    return (usage.n_layers + 1.0) * usage.passes[experts] - usage.distance(experts)


def farthest_layer(usage: Usage, experts: Numbers) -> Scores:
    """Score by the distance of the layer: best for prompts, which use all experts in order."""
    return usage.decayed_counts(experts) / (1.0 + usage.this) - usage.distance(experts)


POLICIES: dict[str, Policy] = {
    "lru": least_recently_used,
    "lfu": least_frequently_used,
    "least-stale": least_stale,
}
