"""Time that each client adds to the steps of the others, and its share of their time."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp

SHARE = 0.5  # time that another client may add to a step, as a multiple of the step without it
LEAST_SHARE = 0.125  # the same with many clients: each has an equal part of the time
MEMORY = 30.0  # time constant, in seconds of steps
LASTING = 1.0  # added seconds that reduce a client's share to three quarters


class ClientShares:
    """Account of the time that each client added beyond its share.

    A client pays its debt by its share of each step. Until then its prompts wait. If it owes more
    than a step, its responses wait as well. The share of a client that lately added a lot of time
    falls to a half: a single prompt is processed soon, endless requests delay others less.

    share  of the current step; 0 with one client, or without responses
    """

    def __init__(self) -> None:
        self.share = 0.0
        self._debts: dict[str, float] = {}  # seconds
        self._added: dict[str, float] = {}  # seconds, lately
        self._step = 0.0  # seconds of the last step

    def begin(self, n_clients: int) -> None:
        """Set the share of a step with responses; n_clients: of its prompts and responses."""
        several = n_clients > 1
        self.share = max(min(SHARE, 1 / (n_clients - 1)), LEAST_SHARE) if several else 0
        if not several:
            self._debts.clear()

    def charge(self, client: str, seconds: float) -> None:
        """Note that a client added this time to a step."""
        if self.share and seconds > 0:
            self._debts[client] = self._debts.get(client, 0) + seconds
            self._added[client] = self._added.get(client, 0) + seconds

    def pay(self, others: Mapping[str, float], default: float) -> None:
        """Reduce debts by a step. Its seconds without a client are in others, or `default`."""
        left = dict[str, float]()
        for client, debt in self._debts.items():
            share = self.share * (1 + 1 / (1 + self._added[client] / LASTING)) / 2
            paid = share * others.get(client, default)
            if debt > paid:
                left[client] = debt - paid
        kept = exp(-default / MEMORY)
        lately = {client: kept * seconds for client, seconds in self._added.items()}
        self._added = {
            client: seconds
            for client, seconds in lately.items()
            if client in left or seconds > default
        }
        self._debts, self._step = left, default

    def owes(self, client: str) -> bool:
        """Return True if this client took more than its share of the last steps."""
        return client in self._debts

    def owes_step(self, client: str) -> bool:
        """Return True if this client owes more than a step."""
        return self._debts.get(client, 0) > self._step
