"""Admission of waiting jobs: the next job to begin, and its slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from time import thread_time

from llama_py.context import Context
from llama_py.decoding.prefix_cache import PrefixCache
from llama_py.decoding.prefix_cache.tree import common
from llama_py.serving.client_shares import ClientShares
from llama_py.serving.client_turns import ClientTurns
from llama_py.serving.common_marks import N_SHARED
from llama_py.serving.job import Job
from llama_py.serving.slots import Slot, choose_slot
from llama_py.serving.step_batches import Busy

N_LOOKED_AT = 8  # jobs to check per slot; a job may overtake jobs that wait for a prefix or slot


class Admission:
    """Choice of waiting jobs and of their slots.

    is_tight  a job was preempted: no job begins before another ends
    """

    def __init__(
        self,
        ctx: Context,
        slots: Sequence[Slot],
        waiting: list[Job],
        shares: ClientShares,
        client_slots: int,
    ) -> None:
        """Note the slots and the jobs; client_slots: maximum number of slots of one client."""
        self._ctx, self._cache = ctx, PrefixCache.for_context(ctx)
        self._slots, self._waiting = slots, waiting
        self._shares, self._client_slots = shares, client_slots
        self._clients = ClientTurns()
        self.is_tight = False

    def admit(self, step: int) -> Iterator[Busy]:
        """Yield jobs that no longer wait, each with a slot. The caller begins a job before it takes
        the next; step: number of the current step."""
        busy = self._busy()
        if not self._waiting or len(busy) == len(self._slots):
            return
        n_slots = Counter(job.request.client for _, job in busy)
        for job in self._clients.sort(self._waiting, n_slots)[: N_LOOKED_AT * len(self._slots)]:
            free = [slot for slot in self._slots if slot.job is None]
            if not free or (self.is_tight and len(free) < len(self._slots)):
                return
            client, start = job.request.client, thread_time()
            owes = bool(n_slots) and self._shares.owes_step(client)
            if owes or n_slots[client] >= self._client_slots:
                continue
            slot = self.find_slot(job, free, step)
            if slot is not None:
                n_slots[client] += 1
                self._clients.begin(client, self._waiting)
                self._waiting.remove(job)
                yield slot, job
                self._shares.charge(client, thread_time() - start)

    def find_slot(self, job: Job, free: Sequence[Slot], step: int = 0) -> Slot | None:
        """Return the slot for a job; None if its slot is busy, or another slot is computing the
        prompt's beginning."""
        wanted = job.request.id_slot
        if wanted >= 0:
            return next((slot for slot in free if slot.id == wanted), None)
        if self._is_coming(job):
            return None
        held = [self._cache.tokens(slot.id) for slot in free]
        busy = [] if self._ctx.cparams.kv_unified else [slot.id for slot, _ in self._busy()]
        return choose_slot(free, held, job.ids, job.request.client, busy, step)

    def _busy(self) -> list[Busy]:
        return [(slot, slot.job) for slot in self._slots if slot.job is not None]

    def _is_coming(self, job: Job) -> bool:
        if not job.request.cache_prompt:
            return False
        for slot, other in self._busy():
            if not other.reads or other.request.loras != job.request.loras:
                continue
            n = min(common(other.ids, job.ids), job.most_reused(other))
            if n >= N_SHARED and n > other.pos:
                self._cache.mark(slot.id, n)
                return True
        return False
