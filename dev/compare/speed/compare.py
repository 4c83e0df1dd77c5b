"""Alternating runs of engines, each warm in a separate process: a slow moment affects all."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dev.compare.speed.neighbours import neighbours
from dev.compare.speed.peer import OURS, Peer
from dev.compare.speed.process import Worker, WorkerDied, WorkerError
from dev.compare.speed.results import Record
from dev.compare.speed.test import COLD, Test, groups

PAUSE = 0.05  # seconds between runs, so that the previous engine's threads fall asleep


@dataclass
class Comparison:
    """Comparison of one model with a number of threads.

    environment  of our processes that serve one run only
    over         returns True when new tests may no longer begin; tests of one depth run together
    states       a folder that stores the states of processed depths
    """

    model: Path
    threads: int
    peers: Sequence[Peer]
    n_batch: int = 2048
    n_ubatch: int = 512
    repetitions: int = 5
    environment: Mapping[str, str] = field(default_factory=dict)
    over: Callable[[], bool] = lambda: False
    cpu: str = ""
    states: Path | None = None
    said: set[str] = field(default_factory=set)  # reasons printed before

    def run(self, tests: Sequence[Test]) -> Iterator[Record]:
        """Yield the record of each test; WorkerError if our worker or all peers fail."""
        with ExitStack() as stack:
            workers = [stack.enter_context(Worker(peer)) for peer in self.peers]
            running = self.loaded(workers)
            for group in groups(tests):
                if self.over():
                    return
                if group[0].kind in COLD:
                    yield from (self.cold(test, [w.peer for w in running]) for test in group)
                else:
                    running = self.revived(running, stack)
                    yield from self.warm(group, running)

    def loaded(self, workers: Sequence[Worker]) -> list[Worker]:
        """Return the working workers, and warn if they choose different tokens."""
        found = [(w, self.first_token(w)) for w in workers]
        chosen = {w.name: token for w, token in found if isinstance(token, int)}
        for worker, error in found:
            if isinstance(error, WorkerError):
                if worker.name == OURS or len(chosen) < 2:
                    raise error
                self.say(str(error))
        warn_if_different(chosen)
        return [w for w in workers if w.name in chosen]

    def say(self, why: str) -> None:
        if why not in self.said:
            print(f"left out: {why}", file=sys.stderr)
        self.said.add(why)

    def first_token(self, worker: Worker) -> int | WorkerError:
        """Return the token chosen after a fixed prompt, or the worker's error."""
        try:
            worker.load(str(self.model), self.threads)
            return int(worker.ask("check"))
        except WorkerError as e:
            return e

    def revived(self, workers: Sequence[Worker], stack: ExitStack) -> list[Worker]:
        """Restart workers that died in a test, and return all working workers."""
        found = []
        for worker in workers:
            if worker.process.poll() is not None:
                worker = stack.enter_context(Worker(worker.peer))
                failed: dict[str, str] = {}
                self.told(worker, failed, lambda w: w.load(str(self.model), self.threads))
                if failed:
                    continue
            found.append(worker)
        return found

    def warm(self, group: Sequence[Test], workers: Sequence[Worker]) -> Iterator[Record]:
        """Yield the records of tests that share a context."""
        first = group[0]
        sizes = {**self.sizes(first), "n_ctx": padded(max(test.cells for test in group))}
        if self.states is not None and first.depth:  # each model has a subfolder
            sizes["states"] = str(self.states.resolve() / self.model.name)
        out: dict[str, str] = {}
        for worker in workers:
            self.told(worker, out, lambda w: w.ask("context", depth=first.depth, **sizes))
        for test in group:
            if self.over() and not first.depth:  # process each depth once
                return
            able = [w for w in workers if w.name not in out]
            with neighbours(test.busy):
                record = self.measured(test, able, out)
            yield record

    def sizes(self, test: Test) -> dict[str, Any]:
        return {
            "n_ctx": padded(test.cells),
            "n_seqs": test.n_seqs,
            "n_batch": self.n_batch,
            "n_ubatch": self.n_ubatch,
            "type_k": test.type_k,
            "type_v": test.type_v,
        }

    def measured(self, test: Test, workers: Sequence[Worker], out: dict[str, str]) -> Record:
        """Measure engines alternately after a warmup. Print failures and add them to `out`."""
        runs: dict[str, list[float]] = {w.name: [] for w in workers}
        failed = dict(out)
        for round in range(self.repetitions + 1):
            for worker in workers:
                if worker.name in failed:
                    continue
                taken = self.told(worker, failed, lambda w: w.ask(test.kind, n=test.n))
                if round and taken is not None:
                    runs[worker.name].append(taken)
                time.sleep(PAUSE)
        dead = [w.name for w in workers if w.name in failed and w.process.poll() is not None]
        out.update({name: failed[name] for name in dead})
        return self.record(test, {n: r for n, r in runs.items() if n not in failed}, failed)

    def told(self, worker: Worker, out: dict[str, str], do: Callable[[Worker], Any]) -> Any:
        """Return a worker's result; None if it fails, or raise if the worker is ours."""
        try:
            return do(worker)
        except WorkerError as e:
            if worker.name == OURS:
                raise
            out[worker.name] = str(e)
            self.say(str(e))
            if isinstance(e, WorkerDied):
                worker.process.wait()
            return None

    def cold(self, test: Test, peers: Sequence[Peer]) -> Record:
        """Measure a test of new processes, one process per run."""
        runs: dict[str, list[float]] = {peer.name: [] for peer in peers}
        out: dict[str, str] = {}
        floor = 0
        for _ in range(self.repetitions if test.kind == "first" else 1):
            for peer in peers:
                if peer.name in out:
                    continue
                with Worker(peer, self.environment if peer.name == OURS else {}) as worker:
                    start = time.perf_counter()
                    taken = self.told(worker, out, lambda w: self.once(w, test))
                    if taken is not None:
                        seconds = time.perf_counter() - start
                        runs[peer.name].append(seconds if test.kind == "first" else taken)
                    if peer.name == OURS:
                        floor = self.model.stat().st_size + worker.ask("cache")
                time.sleep(PAUSE)
        ran = {name: values for name, values in runs.items() if name not in out}
        return self.record(test, ran, out, floor)

    def once(self, worker: Worker, test: Test) -> float:
        """Process a prompt in a new context; return 0, or for "memory" the peak bytes."""
        worker.load(str(self.model), self.threads)
        worker.ask("context", depth=test.depth, **self.sizes(test))
        worker.ask("pp", n=test.n)
        if test.kind == "first":
            return 0.0
        worker.ask("tg", n=test.cells - test.n)
        return float(worker.ask("peak"))

    def record(
        self, test: Test, runs: dict[str, list[float]], out: dict[str, str], floor: int = 0
    ) -> Record:
        return Record(self.model.name, self.cpu, self.threads, test, runs, dict(out), floor)


def padded(n: int) -> int:
    return -(-n // 256) * 256


def warn_if_different(tokens: Mapping[str, int]) -> None:
    """Print a warning if engines choose different tokens."""
    if len(set(tokens.values())) > 1:
        print(f"warning: the engines choose different tokens: {tokens}", file=sys.stderr)
