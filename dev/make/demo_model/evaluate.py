"""Held-out figures and sample text of a model."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dev.make.demo_model.model import Model

WINDOW = 256


@dataclass(frozen=True)
class Figures:
    """Means over all positions. Losses are in nats per token; the rest are shares of 0..1.

    accept: the MTP layer's greedy draft equals the trunk's greedy token, so it would be accepted.
    mtp_top1, top1: the greedy token of the MTP layer, or of the trunk, is the real next token.
    """

    loss: float
    mtp_loss: float
    accept: float
    mtp_top1: float
    top1: float

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss)


@torch.no_grad()
def evaluate(model: Model, ids: Tensor, window: int, batch: int = 16) -> Figures:
    """Score every position of `ids` [tokens], cut into windows that do not see each other."""
    model.eval()
    n = (len(ids) - 1) // window
    inputs = ids[: n * window].view(n, window)
    targets = ids[1 : n * window + 1].view(n, window)
    sums = torch.zeros(5, dtype=torch.float64)
    for x, y in zip(inputs.split(batch), targets.split(batch), strict=True):
        trunk, mtp = model(x)
        a, b = trunk.argmax(-1), mtp.argmax(-1)
        parts = [
            F.cross_entropy(trunk.flatten(0, 1), y.flatten(), reduction="sum"),
            F.cross_entropy(mtp.flatten(0, 1), y.flatten(), reduction="sum"),
            (a == b).sum(),
            (b == y).sum(),
            (a == y).sum(),
        ]
        sums += torch.stack(parts).double()
    model.train()
    return Figures(*(sums / (n * window)).tolist())


@torch.no_grad()
def generate(
    model: Model, prompt: list[int], n: int, temperature: float, rng: torch.Generator
) -> tuple[list[int], float]:
    """Continue `prompt` by n tokens (temperature 0: greedy), recomputing the window for each.

    Returns all ids and the share of tokens the MTP layer would have drafted right.
    """
    model.eval()
    ids, hits = list(prompt), 0
    for _ in range(n):
        trunk, mtp = (logits[0, -1] for logits in model(torch.tensor([ids[-WINDOW:]])))
        if temperature == 0:
            token = trunk.argmax()
        else:
            token = torch.multinomial((trunk / temperature).softmax(-1), 1, generator=rng)[0]
        hits += int(mtp.argmax() == token)
        ids.append(int(token))
    model.train()
    return ids, hits / n
