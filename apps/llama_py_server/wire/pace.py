"""Pace of each client's requests while the server generates responses for others."""

from __future__ import annotations

from collections import Counter

RATE = 50.0  # requests per second of an address; each takes about a millisecond of all threads
BURST = 100  # requests without a delay
MAX_ADDRESSES = 4096


class Pace:
    """Delays of connections and requests by address, by the generic cell rate algorithm.

    Each request costs time of the event loop, also if it is refused, and Python runs one thread at
    a time. An address therefore gets a small part of this time, unless it is the only one.
    """

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._due: dict[str, float] = {}  # time of each address's full allowance

    def open(self, address: str) -> None:
        """Count an open connection."""
        self._open[address] += 1

    def close(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    def delay(self, address: str, now: float) -> float:
        """Count a connection or request; return the seconds to wait before reading it.

        The delay is 0 if no other address has a connection, and for unix sockets (address "").
        """
        if not address:
            return 0.0
        if len(self._due) > MAX_ADDRESSES:
            self._due = {a: due for a, due in self._due.items() if due > now}
        due = max(self._due.get(address, now), now) + 1 / RATE
        if len(self._open) < 2:
            due = min(due, now + BURST / RATE)
        self._due[address] = due
        return max(due - now - BURST / RATE, 0.0)
