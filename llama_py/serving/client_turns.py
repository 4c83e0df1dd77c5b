"""Order of waiting jobs: clients take turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from llama_py.serving.job import Job

MAX_CLIENTS = 1024  # number of clients in the order of turns


class ClientTurns:
    """Order of clients by the start of their last jobs."""

    def __init__(self) -> None:
        self._begun: dict[str, int] = {}  # number of the last job that began, by client
        self._n_begun = 0

    def sort(self, waiting: Sequence[Job], n_slots: Mapping[str, int]) -> list[Job]:
        """Return jobs in order: clients take turns, and clients with fewer slots are first."""
        place, keys = Counter(n_slots), []
        for i, job in enumerate(waiting):
            client = job.request.client
            keys.append((place[client], self._begun.get(client, -1), i))
            place[client] += 1
        return [waiting[i] for *_, i in sorted(keys)]

    def begin(self, client: str, waiting: Sequence[Job]) -> None:
        """Note that a job of this client begins."""
        self._begun[client] = self._n_begun = self._n_begun + 1
        if len(self._begun) > MAX_CLIENTS:
            known = {job.request.client for job in waiting}
            self._begun = {name: n for name, n in self._begun.items() if name in known}
