"""Choice of types by their losses within a budget of bytes, or of loss."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ggml_py.errors import GGUFError

Choice = dict[str, "Candidate"]


@dataclass(frozen=True, order=True)
class Candidate:
    """A type for a tensor.

    nbytes  bytes of the tensor
    loss    its share of the divergence
    """

    nbytes: int
    loss: float
    type: str


def find_hull(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates on the lower convex hull of bytes and loss, the smallest first."""
    hull: list[Candidate] = []
    for c in sorted(candidates):
        if hull and c.loss >= hull[-1].loss:
            continue
        while len(hull) > 1 and _gain(hull[-2], hull[-1]) <= _gain(hull[-1], c):
            hull.pop()
        hull.append(c)
    return hull


def _gain(a: Candidate, b: Candidate) -> float:
    """Return the loss that each byte from a to b saves."""
    return (a.loss - b.loss) / max(1, b.nbytes - a.nbytes)


def choose_types(
    tensors: Mapping[str, Sequence[Candidate]],
    most_bytes: int | None = None,
    most_loss: float | None = None,
) -> Choice:
    """Return a candidate of each tensor, of least total loss within a number of bytes, or of least
    bytes within a total loss.

    Steps along the tensors' hulls follow each other by gain, which is optimal but for the last
    step. Then single steps use the remaining bytes.

    Raises GGUFError if no choice is within the budget.
    """
    hulls = {name: find_hull(candidates) for name, candidates in tensors.items()}
    chosen = {name: hull[0] for name, hull in hulls.items()}
    size, loss = (sum(getattr(c, what) for c in chosen.values()) for what in ("nbytes", "loss"))
    if most_bytes is not None and size > most_bytes:
        raise GGUFError(
            f"no types fit into {most_bytes} bytes; the smallest types need {size}; "
            "raise --bpw or --size"
        )
    for name, before, after in _steps(hulls):
        if most_loss is not None and loss <= most_loss:
            return chosen
        if chosen[name] != before:
            continue  # an earlier step of the tensor was too large
        if most_bytes is None or size + after.nbytes - before.nbytes <= most_bytes:
            chosen[name] = after
            size += after.nbytes - before.nbytes
            loss += after.loss - before.loss
    if most_loss is not None and loss > most_loss:
        raise GGUFError(
            f"no types reach a KL divergence of {most_loss:g}; the smallest is {loss:.3g}; "
            "raise --kld"
        )
    if most_bytes is not None:
        _fill(tensors, chosen, most_bytes - size)
    return chosen


def _steps(hulls: Mapping[str, Sequence[Candidate]]) -> Iterator[tuple[str, Candidate, Candidate]]:
    """Yield the steps of all hulls, the largest gain first."""
    heap = [
        (-_gain(a, b), name, i, a, b)
        for name, hull in hulls.items()
        for i, (a, b) in enumerate(pairwise(hull))
    ]
    heapq.heapify(heap)
    while heap:
        _, name, _, a, b = heapq.heappop(heap)
        yield name, a, b


def _fill(tensors: Mapping[str, Sequence[Candidate]], chosen: Choice, left: int) -> None:
    """Use the remaining bytes for the steps that save most."""
    while True:
        steps = [
            (chosen[name].loss - c.loss, name, c)
            for name, candidates in tensors.items()
            for c in candidates
            if c.nbytes - chosen[name].nbytes <= left and c.loss < chosen[name].loss
        ]
        if not steps:
            return
        _, name, best = max(steps, key=lambda step: step[0])
        left -= best.nbytes - chosen[name].nbytes
        chosen[name] = best
