"""Measure Python's overhead per token: microseconds between two native runs.

    python -m dev.compare.overhead -m MODEL.gguf ... [-t 2] [--sequences 1,4,16]
    python -m dev.compare.overhead -m MODEL.gguf ... --skip

Measures a response of `llama_py.stream`, and with --sequences the steps of an Engine with that
number of parallel responses. --skip replaces the kernels with memory reads that also evict the CPU
caches; then the machine need not be idle. Each cell has the 15th percentile and the median.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

import llama_py
from llama_py.context import Context
from llama_py.params import AnswerParams
from llama_py.serving import Engine, Request

N_PROMPT, N_WARM = 16, 40  # prompt tokens; warmup tokens of a response, not counted
SWEPT = 256 << 20  # bytes; larger than the CPU caches


class Outside:
    """Timer of the host's work outside native runs, token by token."""

    def __init__(self, skip: bool) -> None:
        self.skip, self.native, self.started = skip, 0, 0
        self.swept = np.zeros(SWEPT // 4, np.float32)
        self.found: list[float] = []

    def watch(self, ctx: Context) -> None:
        """Start measuring a context that has already computed a token."""
        natives = ctx.devices[-1].executor._pool.natives  # type: ignore[attr-defined]
        launch: Callable[..., Any] = natives.launch

        def timed(*where: int) -> None:
            start = perf_counter_ns()
            if self.skip:
                self.swept.sum()
            else:
                launch(*where)
            self.native += perf_counter_ns() - start

        natives.launch = timed

    def step(self) -> None:
        """Record the end of a step, which generates one token per sequence."""
        now = perf_counter_ns()
        if self.started:
            self.found.append((now - self.started - self.native) / 1e3)
        self.native, self.started = 0, perf_counter_ns()

    def __str__(self) -> str:
        own = np.array(self.found[N_WARM:] or [np.nan])
        return f"{np.percentile(own, 15):.0f} / {np.median(own):.0f}"


def of_stream(model: llama_py.Model, outside: Outside, n: int, threads: int) -> None:
    with model.context(n_ctx=N_PROMPT + N_WARM + n, n_threads=threads) as ctx:
        ids = list(range(500, 500 + N_PROMPT))
        for i, _ in enumerate(llama_py.stream(ctx, ids, max_tokens=N_WARM + n)):
            if i == 2:
                outside.watch(ctx)
            outside.step()


def of_engine(model: llama_py.Model, outside: Outside, n: int, threads: int, n_seqs: int) -> None:
    """Measure the time between steps, at the events of the first sequence."""
    most, done = N_WARM + n, threading.Event()
    n_ctx = (N_PROMPT + most) * n_seqs
    with Engine(model, n_ctx=n_ctx, n_seq_max=n_seqs, kv_unified=True, n_threads=threads) as engine:

        def told(event: Any, first: bool) -> None:
            if not first or event.token is None:
                return
            if event.timings.n_gen == 3:
                outside.watch(engine._ctx)
            outside.step()
            if event.finish_reason is not None:
                done.set()

        params = AnswerParams(max_tokens=most, temp=0.0)
        for i in range(n_seqs):
            ids = list(range(500 + 20 * i, 500 + 20 * i + N_PROMPT))
            engine.submit(Request(prompt=ids, params=params), lambda e, i=i: told(e, i == 0))
        done.wait(600)


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("-m", "--model", nargs="+", type=Path, required=True)
    p.add_argument("-t", "--threads", type=int, default=2)
    p.add_argument("-n", type=int, default=200, help="number of measured tokens")
    p.add_argument("--sequences", default="", help="parallel Engine responses, such as 1,4,16")
    p.add_argument("--skip", action="store_true", help="compute nothing")
    args = p.parse_args()
    counts: Sequence[int] = [int(n) for n in args.sequences.split(",") if n]
    print("| microseconds per step | stream |", *(f"{n} responses |" for n in counts))
    print("|---" * (2 + len(counts)) + "|")
    for path in args.model:
        with llama_py.load(path) as model:
            cells = [Outside(args.skip) for _ in (0, *counts)]
            of_stream(model, cells[0], args.n, args.threads)
            for cell, n_seqs in zip(cells[1:], counts, strict=True):
                of_engine(model, cell, args.n, args.threads, n_seqs)
        print(f"| {path.name} |", *(f"{cell} |" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
