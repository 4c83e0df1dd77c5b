"""Seconds of a token and of a prompt on several machines. docs/ranks.md has the formulas.

Machines are N = t p: p stages, each with some of the layers, which t machines share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ggml_py.tensor import MAX_SRC

F32 = 4  # bytes of a value sent between ranks
N_SUMS = 2  # sums of most layers: after attention, or its replacement, and FFN


@dataclass(frozen=True, slots=True)
class Link:
    """latency  seconds from one machine to another;  rate  bytes/s in each direction
    message   seconds of processing per message in the two processes, in addition to the link
    ends      maximum bytes/s between processes, in both directions together, for any link
    meeting   extra seconds of two opposite messages, compared with one"""

    latency: float
    rate: float
    message: float = 60e-6
    ends: float = 8e8
    meeting: float = 0.0

    def seconds(self, nbytes: float) -> float:
        """Return the seconds of a message to one machine. Bytes are copied while others are sent,
        so the slower step counts."""
        return self.latency + self.message + nbytes / min(self.rate, 2 * self.ends)

    def exchange(self, nbytes: float) -> float:
        """Return the seconds of an exchange: each machine sends nbytes and receives nbytes."""
        seconds = nbytes / min(self.rate, self.ends)
        return self.latency + self.message + self.meeting + seconds


@dataclass(frozen=True, slots=True)
class BatchCost:
    """layers, head  seconds of one batch of n_tokens on one machine
    n_embd, n_vocab  values sent after a layer, and at the end
    n_sums  sums of each layer, if machines share it
    summing  seconds of a sum without the link: adding, and restarting the threads"""

    n_tokens: int
    layers: Sequence[float]
    head: float
    n_embd: int
    n_vocab: int
    n_sums: Sequence[int] = ()
    summing: float = 0.0

    @property
    def row_bytes(self) -> int:
        """Bytes of a layer's result."""
        return F32 * self.n_embd * self.n_tokens


def stages(layers: Sequence[float], p: int) -> list[float]:
    """Return the seconds of p groups of consecutive layers, of equal size or one layer more."""
    n = len(layers)
    cuts = [i * n // p for i in range(p + 1)]
    return [sum(layers[a:b]) for a, b in pairwise(cuts)]


def one_sum(shape: BatchCost, link: Link, t: int) -> float:
    """Return the seconds of a sum over t machines if each sends its part to all others."""
    return link.exchange((t - 1) * shape.row_bytes) + shape.summing if t > 1 else 0.0


def batch(shape: BatchCost, link: Link, t: int, p: int) -> list[float]:
    """Return the seconds of each stage of a batch, including its transfer. The last stage has the
    head, and sends the logits of one token to the first rank."""
    shared = one_sum(shape, link, t)
    counts = stages(shape.n_sums or [N_SUMS] * len(shape.layers), p)
    found = [c / t + k * shared for c, k in zip(stages(shape.layers, p), counts, strict=True)]
    for i in range(p - 1):
        found[i] += link.seconds(shape.row_bytes)
    if t > 1:
        found[0] += link.seconds(0)  # the other machines wait for a start message
    found[-1] += shape.head / t
    if t * p > 1:
        # 1/t of the logits is local if the last stage is the first
        away = (t - 1) / t if p == 1 else 1.0
        found[-1] += link.seconds(F32 * shape.n_vocab * away)
    return found


def token(shape: BatchCost, link: Link, t: int, p: int) -> float:
    """Return the seconds of a token of one response: stages run in sequence."""
    return sum(batch(shape, link, t, p))


def prompt(shape: BatchCost, link: Link, t: int, p: int, n_batches: int) -> float:
    """Return the seconds of a prompt of several batches, pipelined through the stages."""
    found = batch(shape, link, t, p)
    return sum(found) + (n_batches - 1) * max(found)


def fastest_split(shape: BatchCost, link: Link, n: int) -> tuple[int, int]:
    """Return t and p of n machines with the fastest token, t being valid for a sum."""
    most = min(n, MAX_SRC)
    pairs = [(t, n // t) for t in range(1, most + 1) if n % t == 0 and n // t <= len(shape.layers)]
    pairs = pairs or [(most, n // most)]
    return min(pairs, key=lambda pair: token(shape, link, *pair))
