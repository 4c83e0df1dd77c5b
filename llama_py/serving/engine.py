"""Engine that serves requests from any thread in one computing thread.

with Engine(model, n_ctx=8192, n_seq_max=4) as engine:
    handle = engine.submit(Request(prompt=ids), told=print)
    for event in engine.stream(Request(prompt=other_ids)):
        print(event.text, end="")
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ggml_py.backend import ExpertStats
from ggml_py.errors import ContextError
from ggml_py.machine.frames import with_large_chunk
from llama_py.adapters.lora import Adapter
from llama_py.batch import F32
from llama_py.batch.prompts import (
    MixedPrompt,
    TooLong,
    check_tokens,
    check_whole,
    is_mixed,
    n_cells,
    n_whole,
)
from llama_py.context import Context
from llama_py.context.warmup import build_step_graph, compile_all_kernels
from llama_py.decoding.drafting.needs import n_planes
from llama_py.decoding.prefix_cache import load_slot, save_slot
from llama_py.decoding.prefix_cache.budget import CommonLimit
from llama_py.decoding.sequences import Sequences
from llama_py.loading.model import LoadedModel
from llama_py.params import ContextParams
from llama_py.params.speculative import SpeculativeParams
from llama_py.serving.answer import Answer
from llama_py.serving.job import Handle, Job, Told
from llama_py.serving.metrics import Now
from llama_py.serving.pending_scores import PendingScores, Scores, score_requests
from llama_py.serving.reading import Reading
from llama_py.serving.request import Busy, EngineClosed, Event, Request
from llama_py.serving.scheduler import Scheduler
from llama_py.serving.slots import SlotInfo
from llama_py.serving.tasks import Steps, Task, at_once
from llama_py.support.resource import Resource
from llama_py.support.signature import takes
from llama_py.text.generate import check_predicts
from llama_py.text.rerank import check_reranks, pair
from llama_py.text.score import check_continuations

log = logging.getLogger("llama_py")

MAX_QUEUE = 512


class Engine(Resource):
    """A context of a model with a slot for each of its sequences, and the thread that runs it.

    model    model that generates the responses
    n_ctx    capacity of one sequence in tokens
    n_slots  number of sequences: `n_seq_max` of the params, 1 for an encoder-decoder
    memory   bytes by device and use, like Context.memory_breakdown
    size     bytes of weights, memory and compute buffers, without saved states
    n_kept   maximum bytes of saved states in host memory; None: no limit
    error    exception that stopped and closed the engine; None after `close`
    """

    @takes(ContextParams)
    def __init__(
        self,
        model: LoadedModel,
        *,
        speculative: SpeculativeParams | None = None,
        max_queue: int = MAX_QUEUE,
        client_slots: int = 0,
        n_piece: int | None = None,
        warmup: bool = False,
        cache_limit: CommonLimit | None = None,
        owns_model: bool = False,
        **options: Any,
    ) -> None:
        """Create the engine; options are the fields of ContextParams.

        speculative  drafting options for all responses
        max_queue    maximum number of requests waiting for a slot
        client_slots  maximum number of slots that requests of one client use (0: no limit)
        n_piece      prompt tokens in a step that also generates tokens; None: chosen by measured
                     step times that keep responses smooth
        warmup       compile the kernels before the first request; build graphs while it is awaited
        cache_limit  limit for the prefix caches of several engines; None: `cache_ram` only
        owns_model   close it with the engine

        Raises the errors of `Context` and `Sequences`.
        """
        drafts = speculative or SpeculativeParams()
        p = ContextParams(**options)
        p = replace(p, n_rs_seq=max(p.n_rs_seq, n_planes(drafts)))
        if model.has_encoder:  # a context has one encoded text
            p = replace(p, n_seq_max=1)
        self.model, self.params, self.max_queue = model, p, max_queue
        self._owns_model = owns_model
        self._ctx = ctx = Context(model, **vars(p))
        self.n_ctx, self.n_slots = ctx.cparams.n_ctx_seq, ctx.cparams.n_seq_max
        try:
            self._sequences = Sequences.for_context(ctx, drafts)
            if warmup:
                compile_all_kernels(ctx)
        except BaseException:
            ctx.close()
            raise
        self._cache = self._sequences.cache
        self.memory, self.n_kept = ctx.memory_breakdown(), self._cache.budget.limit
        used = self.memory.values()
        self.size = sum(n for by in used for what, n in by.items() if what != "reuse")
        self._scheduler = Scheduler(ctx, self._sequences, n_piece, client_slots)
        self._reading = Reading(model, p, self._scheduler.metrics)
        self._ids = count()
        self._came: deque[Job] = deque()
        self._tasks: deque[Task] = deque()
        self._changed = threading.Condition()
        self._closing, self._draining = False, False
        self.error: BaseException | None = None
        if warmup and ctx.memory.parts and not model.has_encoder and ctx.checker is None:
            self._later(self._build_graphs())
        self._thread = threading.Thread(target=self._run, name="llama-engine", daemon=True)
        if cache_limit is not None:
            self._cache.budget.share(cache_limit, self._call)
        self._thread.start()

    def _call(self, do: Callable[[], None]) -> None:
        """Call a function between steps, unless the engine is closed."""
        with suppress(EngineClosed):
            self._later(at_once(do))

    def submit(self, request: Request, told: Told) -> Handle:
        """Submit a request; the engine's thread calls `told` with each event.

        `told` must not block; if it raises, the request is cancelled. The last event has a
        finish_reason. Raises Busy if the queue is full, Closed, TooLong or another ContextError
        if the prompt does not fit, and the errors of `Sampler`, mainly GrammarError.
        """
        [handle] = self._start([self._job(request, told)])
        return handle

    def _job(self, request: Request, told: Told, n_before: int = 0) -> Job:
        """Create the job of a request; n_before: number of jobs that will wait before it."""
        self._check_open()
        self._check_answers()
        self._check(request, n_before)
        return Job(next(self._ids), Answer(self._with_chat(request), self.model), told)

    def _start(self, jobs: Sequence[Job]) -> list[Handle]:
        """Let jobs wait for slots; the engine's thread sees all at once."""
        with self._changed:
            self._check_open()
            self._came.extend(jobs)
            self._changed.notify()
        return [Handle(job, self._wake) for job in jobs]

    def stream(self, request: Request) -> Generator[Event, None, None]:
        """Yield the events of a request. Closing the generator cancels it; an error is raised."""
        events: SimpleQueue[Event] = SimpleQueue()
        handle = self.submit(request, events.put)
        try:
            while True:
                event = events.get()
                if event.error is not None:
                    raise event.error
                yield event
                if event.finish_reason is not None:
                    return
        finally:
            handle.cancel()

    @property
    def n_text(self) -> int:
        """Maximum number of tokens of a text to embed."""
        return self._reading.n_tokens

    def embed(
        self,
        texts: Sequence[Sequence[int]],
        pooling: str = "auto",
        normalize: bool | int = True,
        attention: str = "auto",
    ) -> Future[list[F32]]:
        """Return embeddings F32 [n_embd] of texts, given as ids; scores if the model is a reranker.

        Pooling "none" gives token embeddings [n_tokens, n_embd]. See `llama_py.text.embed.embed`.

        Raises TooLong for a text that is longer than a batch, ContextError for an empty one.
        """
        empty = next((i for i, ids in enumerate(texts) if not len(ids)), None)
        if empty is not None:
            raise ContextError(f"text {empty} has no tokens to embed; omit it")
        self._check_tokens(id for ids in texts for id in ids)
        self._reading.check(texts)
        norm = (2 if normalize else -1) if isinstance(normalize, bool) else normalize
        return self._later(self._reading.embed(texts, pooling, attention, norm))

    def rerank(self, query: str, texts: Sequence[str]) -> Future[list[F32]]:
        """Score the match of texts to a query, F32 [n_cls_out] each. ContextError if the model is
        not a reranker, TooLong for a text that is too long."""
        check_reranks(self.model)
        return self.embed([pair(self.model, [query, text]) for text in texts], "rank")

    def score(
        self,
        prompt: Sequence[int],
        continuations: Sequence[Sequence[int]],
        n_top: int = 0,
        **options: Any,
    ) -> Future[Scores]:
        """Score continuations of a prompt, given as ids: for each the `Score` of its tokens.

        The requests share the slots with others. The prompt is computed once, unless it is cached,
        and the continuations of several slots are computed in one batch.

        Args:
            prompt: At least one token.
            continuations: At least one token each.
            n_top: Number of most likely tokens for each token.
            options: Other fields of `Request`, such as `client` and `t_max`.

        Returns:
            A future of the scores, in order. Its cancellation cancels the requests.

        Raises:
            ContextError: No prompt, no continuation, or an empty one.
            Busy: The queue is full.
            TooLong: The prompt with a continuation exceeds a sequence.
        """
        check_continuations(prompt, continuations)
        pending = PendingScores(continuations)
        width = 0 if self._ctx.memory.allows_unequal_lengths else self.n_slots
        jobs = list[Job]()
        for one in score_requests(prompt, continuations, n_top, width, **options):
            jobs.append(self._job(one.request, pending.listener(one), len(jobs)))
        for handle in self._start(jobs):
            pending.add(handle)
        return pending.future

    def _with_chat(self, request: Request) -> Request:
        """Return a request with the parameters of its chat format."""
        chat = request.chat
        if chat is None:
            return request
        p, room = chat.params(request.params), self.n_ctx - n_cells(request.prompt)
        most = room if p.max_tokens < 0 else p.max_tokens
        constraint = None if p.constraints else chat.constraint(most)
        marks = chat.marks(self._ctx, request.prompt)
        return replace(request, params=p, constraint=constraint, marks=marks)

    def slots(self) -> tuple[SlotInfo, ...]:
        """Return the state of each sequence."""
        return self._scheduler.info()

    def metrics(self) -> Now:
        """Return current and total metrics."""
        s, budget = self._scheduler, self._cache.budget
        experts = replace(self._ctx.model.expert_stats or ExpertStats())
        total = replace(s.metrics, ended=Counter(dict(s.metrics.ended)), experts=experts)
        n_cells = sum(slot.n_held for slot in s.slots)
        return Now(
            total,
            len(s.busy),
            len(s.waiting) + len(self._came),
            n_cells,
            budget.size,
            budget.n_evicted,
            -1 if budget.limit is None else budget.limit,
        )

    def set_loras(self, loras: Mapping[Adapter, float]) -> None:
        """Set the default adapters of requests."""
        self._check_loras(loras)
        self._scheduler.loras = dict(loras)

    @property
    def loras(self) -> dict[Adapter, float]:
        """Default adapters of requests."""
        return dict(self._scheduler.loras)

    def save_slot(self, id: int, path: str | Path) -> Future[tuple[int, int]]:
        """Write a sequence to a file, once it is idle; -> its tokens, and the file's bytes.
        See `llama_py.decoding.prefix_cache.save_slot`."""
        cache = self._cache

        def save() -> tuple[int, int]:
            n_bytes = save_slot(cache, path, id)
            return len(cache.tokens(id)), n_bytes

        return self._of_slot(id, save)

    def restore_slot(self, id: int, path: str | Path) -> Future[tuple[int, int]]:
        """Load a sequence from a file into an idle slot; returns its number of tokens and the
        file's bytes. See `llama_py.decoding.prefix_cache.load_slot`."""

        def load() -> tuple[int, int]:
            tokens = load_slot(self._cache, path, id)
            if self.model.vision is None and is_mixed(tokens):
                self._cache.invalidate(id, 0)
                raise ContextError(
                    f"{Path(path).name}: Cannot restore media tokens without an mmproj: no "
                    "vision encoder is loaded for the images of this sequence"
                )
            return len(tokens), Path(path).stat().st_size

        return self._of_slot(id, load)

    def erase_slot(self, id: int) -> Future[int]:
        """Clear a sequence when it is idle; the result is its number of tokens."""

        def erase() -> int:
            n = self._ctx.memory.seq_pos_max(id) + 1
            self._cache.invalidate(id, 0)
            return n

        return self._of_slot(id, erase)

    def close(self, drain: bool = False) -> None:
        """Stop and release the context's memory. Open requests end with the error Closed; `drain`
        completes them first, including the queue. Repeated calls are allowed."""
        with self._changed:
            self._draining |= drain
            self._closing = True
            if not drain:
                self._draining = False
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _check_open(self) -> None:
        if self._closing:
            raise EngineClosed("the engine is closed and accepts no requests")

    def _check_answers(self) -> None:
        """Raise ContextError if the model cannot generate text."""
        check_predicts(self._ctx)
        if not self._ctx.memory.parts:
            raise ContextError(
                f"architecture {self.model.arch!r} has no KV cache or state, so it cannot "
                "generate text; use embed"
            )

    def _check(self, request: Request, n_before: int) -> None:
        n = len(self._came) + len(self._scheduler.waiting) + n_before
        if n >= self.max_queue:
            raise Busy(f"{n} requests are waiting, the maximum of max_queue; try again later")
        if n_cells(request.prompt) > self.n_ctx:
            raise TooLong(n_cells(request.prompt), self.n_ctx)
        if self.model.has_encoder:
            self._check_encoded(request)
        mixed = isinstance(request.prompt, MixedPrompt)
        if isinstance(request.prompt, MixedPrompt) and request.prompt.before:
            raise ContextError("a request must contain its whole prompt, not a continuation (rest)")
        self._check_tokens(id for id in request.prompt if id >= 0 or not mixed)
        self._check_tokens(request.alternatives)
        check_whole(n_whole(request.prompt), self._ctx.cparams)
        if not -1 <= request.id_slot < self.n_slots:
            raise ContextError(f"id_slot must be in [-1, {self.n_slots}), got {request.id_slot}")
        self._check_loras(request.loras or {})

    def _check_encoded(self, request: Request) -> None:
        n, most, arch = len(request.prompt), self._ctx.cparams.n_ubatch, self.model.arch
        if n > most:
            raise ContextError(
                f"the encoder of architecture {arch!r} processes its {n} tokens in one ubatch, "
                f"but n_ubatch = {most}; use a larger n_ubatch (-ub)"
            )
        if request.prompt_logprobs is not None:
            raise ContextError(
                f"prompts of architecture {arch!r} are encoded, so they have no prompt_logprobs; "
                "omit them"
            )

    def _check_tokens(self, ids: Iterable[int]) -> None:
        check_tokens(ids, self.model.hparams.n_vocab)

    def _check_loras(self, loras: Mapping[Adapter, float]) -> None:
        for adapter in loras:
            if adapter not in self.model.adapters:
                raise ContextError(
                    f"{adapter} belongs to another model; use this model's load_adapter"
                )

    def _of_slot(self, id: int, do: Callable[[], Any]) -> Future[Any]:
        if not 0 <= id < self.n_slots:
            raise ContextError(f"slot must be in [0, {self.n_slots}), got {id}")
        slot = self._scheduler.slots[id]

        def run() -> Any:
            try:
                return do()
            finally:
                self._scheduler.look(slot)

        return self._later(at_once(run), lambda: slot.job is None)

    def _later(self, steps: Steps, is_ready: Callable[[], bool] = lambda: True) -> Future[Any]:
        task = Task(steps, is_ready)
        with self._changed:
            self._check_open()
            self._tasks.append(task)
            self._changed.notify()
        return task.future

    def _build_graphs(self) -> Steps:
        """Build the graphs of 1, 2, ... responses until the first request arrives. In a small model
        a graph takes longer than a step."""
        for n in range(1, self.n_slots + 1):
            scheduler = self._scheduler
            if self._came or not scheduler.is_idle or any(s.n_held for s in scheduler.slots):
                return
            build_step_graph(self._ctx, n)
            self._scheduler.caches.note(0, n)
            yield

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    @with_large_chunk
    def _run(self) -> None:
        scheduler = self._scheduler
        try:
            while self._wait():
                while self._came:
                    scheduler.waiting.append(self._came.popleft())
                scheduler.step()
                self._do_task()
        except BaseException as e:
            self.error = e
            log.exception("the engine stops after an internal error")
        finally:
            self._end(self.error)

    def _wait(self) -> bool:
        """Wait for something to do. False: it is time to stop."""
        with self._changed:
            while True:
                has_work = bool(self._came or self._tasks or not self._scheduler.is_idle)
                if self._closing and not (self._draining and has_work):
                    return False
                if has_work:
                    return True
                self._changed.wait()

    def _do_task(self) -> None:
        """Run one step of the first ready task; the others are first next time."""
        for _ in range(len(self._tasks)):
            task = self._tasks.popleft()
            if task.is_ready():
                if task.step():
                    self._tasks.append(task)
                return
            self._tasks.append(task)

    def _end(self, why: BaseException | None) -> None:
        error = EngineClosed("the engine was closed before the response was complete")
        error.__cause__ = why
        with self._changed:
            self._closing = True
        while self._came:
            self._scheduler.waiting.append(self._came.popleft())
        self._scheduler.end_all("error", error)
        while self._tasks:
            self._tasks.popleft().fail(error)
        self._reading.close()
        self._ctx.close()
        if self._owns_model:
            self.model.close()
