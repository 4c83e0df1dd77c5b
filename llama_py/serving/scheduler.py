"""Scheduler of parallel requests in one batch, step by step (llama-server's update_slots).

A step processes about a second's worth of prompts, and computes a token, or a draft, of each
response, which keeps responses smooth while prompts are processed. One thread runs all steps."""

from __future__ import annotations

import logging
from dataclasses import replace
from time import monotonic, thread_time

from ggml_py.errors import ContextError
from ggml_py.machine.building import clock
from llama_py.adapters.lora import Adapter
from llama_py.batch import Batch
from llama_py.batch.prompts import TooLong
from llama_py.context import Context
from llama_py.decoding.keep import KeepRule, keep_rule
from llama_py.decoding.scores import Score, max_rows, score_pending
from llama_py.decoding.sequences import Sequences
from llama_py.sampler.constraint import ConstraintEnded
from llama_py.serving.adjacent_caches import AdjacentCaches
from llama_py.serving.admission import Admission
from llama_py.serving.answer import Answer
from llama_py.serving.cells import make_cells, put_idle_away
from llama_py.serving.image_prefill import ImageTurns
from llama_py.serving.job import Job
from llama_py.serving.known_scores import KnownScores, ScoredText
from llama_py.serving.metrics import Metrics
from llama_py.serving.prefill_budget import PrefillBudget
from llama_py.serving.request import Event, Reason
from llama_py.serving.slots import Slot, SlotInfo
from llama_py.serving.step_batches import Busy, StepBatches, share_rows

log = logging.getLogger("llama_py")

WORTH = 64  # minimum tokens of a saved conversation: a copy takes a hundredth of computing it
N_GRAPHS = 20, 48  # least and most cached graphs: steps differ in prompt tokens and in sequences
N_SPARE = 4  # tokens of a full context that a context shift always discards (llama-server)


class Scheduler:
    """Slots of a context, waiting jobs, and the next step.

    waiting  jobs without a slot, the next one first
    metrics  counters of the work
    """

    def __init__(
        self, ctx: Context, sequences: Sequences, n_piece: int | None, client_slots: int = 0
    ) -> None:
        """Create the slots of the context.

        n_piece       prompt tokens in a step with responses; None: see `PrefillBudget`
        client_slots  maximum number of slots of one client (0: no limit)
        """
        self.ctx, self.sequences, self.cache = ctx, sequences, sequences.cache
        n_runs = ctx.cparams.n_seq_max * (ctx.cparams.n_seq_max + 1) // 2  # of consecutive slots
        ctx.runner.n_graphs = max(ctx.runner.n_graphs, N_GRAPHS[0], min(n_runs + 4, N_GRAPHS[1]))
        self._pace = PrefillBudget(ctx.cparams.n_batch, ctx.cparams.n_ubatch, n_piece)
        self._turns = StepBatches(self._pace, ctx.memory.allows_unequal_lengths)
        self.caches = AdjacentCaches(ctx)
        self.cache.worth = WORTH
        self.slots = [Slot(i) for i in range(ctx.cparams.n_seq_max)]
        self.waiting: list[Job] = []
        most = client_slots or ctx.cparams.n_seq_max
        self._admission = Admission(ctx, self.slots, self.waiting, self._turns.shares, most)
        self.loras: dict[Adapter, float] = {}
        self.metrics = Metrics()
        self._images = ImageTurns(ctx, self._turns.find_payers, self._rows)
        self._known = KnownScores()

    @property
    def busy(self) -> list[Busy]:
        """Slots at work, in order, with their jobs."""
        return [(slot, slot.job) for slot in self.slots if slot.job is not None]

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.busy

    def step(self) -> None:
        """End cancelled jobs, start waiting jobs in free slots, and compute a step."""
        self._sweep(waiting=True)
        for slot, job in self._admission.admit(self.metrics.n_steps):
            self._begin(slot, job)
        self._sweep()  # jobs that ended while they started
        if not (busy := self.busy):
            return
        self.metrics.n_steps += 1
        self.metrics.n_busy += len(busy)
        start = clock()
        shortest = self._turns.begin(self.metrics.n_steps, busy)
        self._see()
        self._score()
        waits = {job for _, job in busy if not job.reads}
        together = [one for one in busy if not one[1].alone]
        for jobs in [*([together] if together else []), *([one] for one in busy if one[1].alone)]:
            for group, pieces in self._turns.groups(jobs, shortest):
                self._compute(group, pieces, start)
                waits -= {job for _, job in group}
        for job in waits:
            job.answer.spend(clock() - start)  # of a step that left it out
        self._sweep()

    def info(self) -> tuple[SlotInfo, ...]:
        """Return the state of each slot; safe to call from any thread."""
        return tuple(slot.info() for slot in self.slots)

    def end_all(self, reason: Reason, error: Exception | None = None) -> None:
        """End all jobs with this reason."""
        for slot, _ in self.busy:
            self._end(slot, reason, error)
        while self.waiting:
            job = self.waiting.pop()
            self._tell(job, job.answer.end(reason, error))

    def look(self, slot: Slot) -> None:
        """Update the number of tokens that memory has of a sequence."""
        slot.n_held = self.ctx.memory.seq_pos_max(slot.id) + 1

    def _sweep(self, waiting: bool = False) -> None:
        """End jobs that were cancelled or are late; waiting: also jobs without a slot."""
        now = monotonic()
        for job in [job for job in self.waiting if job.has_to_end(now)] if waiting else ():
            self.waiting.remove(job)
            self._tell(job, job.answer.end(job.early_end))
        for slot, job in self.busy:
            if job.has_to_end(now):
                self._end(slot, job.early_end)

    def _begin(self, slot: Slot, job: Job) -> None:
        request = job.request
        slot.job, slot.client = job, job.request.client
        try:
            loras = self.loras if request.loras is None else request.loras
            self.ctx.set_adapters(loras, slot.id)
            n_beyond = job.cells(len(job.ids)) - len(job.ids)
            make_cells(self.ctx, self.slots, job.ids, slot, n_beyond)
            scores = self._find_scores(slot, job)
            n = self._start(slot, job, afresh=not request.cache_prompt)
        except Exception as e:
            self._end(slot, "error", e)
            return
        if not job.answer.n_gen:
            job.keep = self._keep_rule(job)
            room = self.ctx.cparams.n_ctx_seq - job.cells(len(job.ids)) + 1  # no cell for the last
            job.answer.limit(2**31 if job.keep is not None else room)
            self.metrics.n_reused += job.cells(n)
            self._tell(job, replace(job.answer.place(slot.id, job.cells(n)), scores=scores))
            if job.is_scored:
                self._end(slot, "length")

    def _find_scores(self, slot: Slot, job: Job) -> tuple[Score, ...]:
        """Note and return the scores of a prompt that another prompt has."""
        request, kind = job.request, self.ctx.adapter_key(slot.id)
        if request.score_from > 1 or not job.has_unscored or kind is None:
            return ()
        if not job.n_scored:
            job.scored = ScoredText(kind, job.answer.ids, request.prompt_logprobs or 0)
        if job.scored is None or job.scored.kind != kind or not request.cache_prompt:
            return ()
        scores = self._known.find(job.scored)[job.n_scored :]
        job.n_scored += len(scores)
        self._known.add(job.scored, scores)
        return tuple(scores)

    def _start(self, slot: Slot, job: Job, afresh: bool = False, marked: bool = True) -> int:
        """Start a slot with the cached part of a job's ids, and return its length."""
        if self.ctx.model.has_encoder:
            self._encode(slot, job)
            return 0
        told = self.sequences.start(
            slot.id,
            job.ids,
            marks=job.request.marks if marked else None,
            afresh=afresh,
            at_most=job.n_scored if job.has_unscored else None,
            whole=job.align_prefix,
        )
        n = told.n_reused
        job.reads, job.n_held = len(job.ids) - n, n
        job.images, job.n_counted = self.sequences.images(slot.id), job.cells(n)
        self._images.forget(job)
        self.look(slot)
        return n

    def _encode(self, slot: Slot, job: Job) -> None:
        """Encode a job's prompt; the decoder begins with its start token."""
        prompt, start = job.request.prompt, clock()
        job.ids = [self.ctx.model.architecture.start_token]
        self.ctx.memory.seq_rm(slot.id)
        self.ctx.encode(Batch(prompt, seq_ids=[(slot.id,)] * len(prompt)))
        self.sequences.extend(slot.id, job.ids)
        job.reads, job.n_held, job.n_counted = len(job.ids), 0, 0
        seconds = clock() - start
        self.metrics.n_prompt += len(prompt) - 1  # the start token is counted when it is computed
        self.metrics.prompt_seconds += seconds
        job.answer.read(0, seconds)

    def _keep_rule(self, job: Job) -> KeepRule | None:
        """Return the rule of a job's context shift; None if it ends when the context is full."""
        if job.media or self.ctx.model.has_encoder or not self.ctx.memory.can_shift:
            return None
        request, n_prompt = job.request, job.answer.timings.n_prompt
        n_discard = request.n_discard
        return keep_rule(self.ctx, request.params, n_prompt, n_spare=N_SPARE, n_discard=n_discard)

    def _see(self) -> None:
        """Process a part of an image, of the first job that needs one."""
        sight, start = self._images.choose(self.busy), clock()
        if sight is None:
            return
        slot, job = sight.slot, sight.job
        try:
            done = sight.step()
        except Exception as e:
            self._unread([(slot, job)], e)
            return
        seconds = clock() - start
        self.metrics.prompt_seconds += seconds
        self._turns.shares.charge(job.request.client, seconds)
        self.look(slot)
        if done:
            self._images.forget(job)
            if sight.rows is not None:
                self.sequences.place(slot.id, sight.at, sight.rows)
            else:
                self.sequences.skip(slot.id, sight.medium.n_pos)
                job.reads -= sight.medium.n_pos
        self._count_prompt(job)
        self._tell(job, job.answer.read(job.n_done, seconds))

    def _count_prompt(self, job: Job) -> None:
        """Count the prompt's cells that were computed since the last call."""
        self.metrics.n_prompt += job.n_done - job.n_counted
        job.n_counted = job.n_done

    def _rows(self) -> int:
        """Return how many image rows to process in a step."""
        n_answers, budget = self._turns.budget(self.busy)
        return budget if n_answers else self.ctx.cparams.n_batch

    def _score(self) -> None:
        """Process parts of prompts with all their logits, in one batch."""
        busy = [(slot, job) for slot, job in self.busy if job.has_unscored and not job.n_ahead]
        most = min(self._rows(), max_rows(self.ctx.model.hparams.n_vocab))
        wanted = share_rows(self._turns.find_payers(busy), most)
        busy = [(slot, job) for slot, job in busy if slot.id in wanted]
        if not busy:
            return
        n_top = {slot.id: job.request.prompt_logprobs for slot, job in busy}
        start = clock()
        try:
            scores = score_pending(self.sequences, wanted, n_top)
        except Exception as e:
            self._unread(busy, e)
            return
        seconds = clock() - start
        self.metrics.prompt_seconds += seconds
        self._turns.charge(busy, {id: len(found) for id, found in scores.items()}, seconds)
        for slot, job in busy:
            self._note_scores(slot, job, scores.get(slot.id, ()), seconds)

    def _note_scores(self, slot: Slot, job: Job, scores: tuple[Score, ...], seconds: float) -> None:
        """Note the processed part of a prompt; a request for scores only may be complete."""
        self.metrics.n_scored += len(scores)
        self.look(slot)
        job.reads -= len(scores)
        self._count_prompt(job)
        job.n_scored, job.alone = job.pos, False
        if job.scored is not None and not self._known.add(job.scored, scores):
            job.scored = None
        self._tell(job, replace(job.answer.read(job.pos, seconds), scores=scores))
        if job.is_scored:
            self._end(slot, "length")

    def _unread(self, busy: list[Busy], e: Exception) -> None:
        """Free cells after an error in the prompts of jobs, or find the job that causes it."""
        for _, job in busy:
            self._images.forget(job)
        if not isinstance(e, ContextError):
            self._handle_failure(busy, e)
            return
        self._has_no_room(e)
        for slot, job in busy:
            if slot.job is job:
                self._restart(slot, job)

    def _compute(self, group: list[Busy], pieces: dict[int, int], since: float) -> None:
        """Compute one batch for a group of jobs; responses have waited since `since`."""
        for slot, job in group:
            if slot.job is job:
                self._make_room(slot, job)
        busy = [one for one in group if one[0].job is one[1] and not one[1].cancelled]
        if len(group) > 1:
            busy = [(slot, job) for slot, job in busy if not job.alone]  # without restarted jobs
        if not busy:
            return
        start = clock()
        try:
            seq_ids = [slot.id for slot, _ in busy]
            self.caches.adjoin(seq_ids)
            self.sequences.advance(seq_ids, pieces)
        except ContextError as e:
            self._has_no_room(e)
        except Exception as e:
            self._handle_failure(busy, e)
        else:
            end, sampling = clock(), dict[str, float]()
            for slot, job in busy:
                job.alone, began = False, thread_time()
                self.look(slot)
                self._take(slot, job, end - (start if job.reads else since))
                client = job.request.client
                sampling[client] = sampling.get(client, 0) + thread_time() - began
            self._turns.saw(busy, pieces, end - start, sampling)

    def _make_room(self, slot: Slot, job: Job) -> None:
        """Shift a full context and set the draft limit before a response continues."""
        answer = job.answer
        try:
            if job.keep is not None and not job.reads:
                n = self.sequences.make_room(slot.id, job.keep)
                answer.count("n_discarded", n)
                self._restart_shorter(slot)
        except Exception as e:
            self._end(slot, "error", e)
            return
        most, left = job.request.n_drafts, answer.n_left
        self.sequences.limit(
            slot.id, left if most is None else min(left, most + 1), answer.count_allowed
        )

    def _restart_shorter(self, shifted: Slot) -> None:
        """Restart jobs that shared cells with a sequence that was shifted, and lost them."""
        for slot, job in self.busy:
            end = self.ctx.memory.seq_pos_max(slot.id) + 1
            if slot is not shifted and end < slot.n_held:
                self._restart(slot, job)

    def _take(self, slot: Slot, job: Job, seconds: float) -> None:
        """Choose tokens of a response from a step's logits."""
        answer, sequences = job.answer, self.sequences
        if not job.reads:
            answer.spend(seconds)
            self.metrics.gen_seconds += seconds
        elif not self._has_read(slot, job, seconds):
            return
        n_guesses, n = sequences.n_guesses(slot.id), 0
        answer.count("n_drafted", n_guesses)
        self.metrics.n_drafts += n_guesses > 0
        self.metrics.n_drafted += n_guesses
        try:
            while slot.job is job and not job.cancelled and sequences.has_rows(slot.id):
                id, row = sequences.take(slot.id, answer.choose)
                answer.count("n_accepted", int(n > 0))
                event = answer.token(id, row)
                self._count(answer, n > 0)
                self._send_event(slot, job, event)
                n += 1
        except ConstraintEnded as e:
            self._send_event(slot, job, answer.end_constraint(e))
        except Exception as e:
            self._end(slot, "error", e, spoiled=True)

    def _count(self, answer: Answer, was_drafted: bool) -> None:
        """Count a generated token, before listeners get it, since they may read the metrics."""
        m, t = self.metrics, answer.timings
        m.n_gen, m.n_accepted = m.n_gen + 1, m.n_accepted + was_drafted
        m.n_longest = max(m.n_longest, t.n_prompt + t.n_gen)

    def _send_event(self, slot: Slot, job: Job, event: Event) -> None:
        """Send an event; the last event frees the slot."""
        if event.finish_reason is not None:
            self._release(slot, job)
        self._tell(job, event)

    def _has_read(self, slot: Slot, job: Job, seconds: float) -> bool:
        """Return True if the prompt is processed and the response can start."""
        has_rows = self.sequences.has_rows(slot.id)
        left = 0 if has_rows else len(self.sequences.pending(slot.id))
        self.metrics.prompt_seconds += seconds
        job.reads, answer = left, job.answer
        self._count_prompt(job)
        n_prompt = answer.timings.n_prompt
        n_done = n_prompt if self.ctx.model.has_encoder else min(job.n_done, n_prompt)
        self._tell(job, answer.read(n_done, seconds))
        if not has_rows:
            return False
        if answer.n_left < 1:
            scores = answer.score_alternatives(self.sequences.next_row(slot.id))
            self.metrics.n_scored += len(scores)
            self._end(slot, "length", scores=scores)
            return False
        return True

    def _has_no_room(self, e: ContextError) -> None:
        """Free shared cells: offload an idle sequence, else preempt the newest job, which continues
        after another job has ended."""
        if put_idle_away(self.ctx, self.slots):
            return
        slot, job = max(self.busy, key=lambda one: one[1].id)
        if len(self.busy) > 1:
            log.info("request %d is preempted: %s", job.id, e)
            job.ids = self.sequences.tokens(slot.id)
            self._release(slot, job)
            self.cache.offload(slot.id)
            self.waiting.insert(0, job)
            self._admission.is_tight = True
        elif job.reads and not job.answer.n_gen:
            self._end(slot, "error", TooLong(job.cells(len(job.ids)), slot.n_held))
        else:
            self._end(slot, "length")

    def _handle_failure(self, busy: list[Busy], e: Exception) -> None:
        """End a job whose step failed; retry several jobs separately to find the cause."""
        if len(busy) == 1:
            self._end(busy[0][0], "error", e, spoiled=True)
            return
        log.warning("a step of %d requests failed, so each is retried separately: %s", len(busy), e)
        for slot, job in busy:
            self._restart(slot, job)

    def _restart(self, slot: Slot, job: Job) -> None:
        """Restart a job from the tokens that memory still has."""
        try:
            job.alone, job.ids = True, self.sequences.tokens(slot.id)
            self.sequences.finish(slot.id, whole=False)
            self._start(slot, job, marked=False)
        except Exception as e:
            self._end(slot, "error", e)

    def _release(self, slot: Slot, job: Job) -> None:
        """Free the slot and keep its sequence."""
        self._images.forget(job)
        try:
            self.sequences.finish(slot.id, whole=False)
            if (n := job.request.score_from) > 1:  # no other prompt begins with a continuation
                self.cache.shorten(slot.id, n)
        except Exception:
            log.exception("slot %d: finishing its sequence failed, so the slot is cleared", slot.id)
            self.cache.invalidate(slot.id, 0)
        self.look(slot)
        slot.job, slot.used, self._admission.is_tight = None, self.metrics.n_steps, False

    def _end(
        self,
        slot: Slot,
        reason: Reason,
        error: Exception | None = None,
        spoiled: bool = False,
        scores: tuple[Score, ...] = (),
    ) -> None:
        """End a slot's job; spoiled: its computed tokens are wrong; scores: of the last event."""
        if (job := slot.job) is not None:
            self._release(slot, job)
            if spoiled:
                if job.scored is not None:
                    self._known.drop(job.scored)
                self.cache.invalidate(slot.id, job.n_held)
                self.look(slot)
            self._tell(job, replace(job.answer.end(reason, error), scores=scores))

    def _tell(self, job: Job, event: Event) -> None:
        if event.finish_reason is not None:
            self.metrics.ended[event.finish_reason] += 1
        job.tell(event)
