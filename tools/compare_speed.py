"""Speed beside llama.cpp's: the same work, in turns, each engine warm in a process of its own.

    python tools/compare_speed.py -m model.gguf --peer-python /path/to/venv/bin/python -t 1,2

The peer's Python has llama-cpp-python. llama.cpp runs twice, with and without repacked weights; the
better one counts. Runs alternate (ours, repacked, plain, ours, ...), so that a slow moment of the
machine hits all; medians are compared. A ratio above 1 means that we are faster. A peer that does
not run here (its repacked kernels do not on every CPU) is left out, and said so.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

PAUSE = 0.05  # seconds between runs: waiting threads of the engine before fall asleep
PEERS = "llama.cpp repacked", "llama.cpp plain"
CHECKED = [1, 5, 3, 2, 8, 4, 7, 6]  # a prompt on which the engines must agree


class Ours:
    """llama-py, in a worker process."""

    def __init__(
        self, model: str, threads: int, repack: bool, n_ctx: int, n_batch: int, n_ubatch: int
    ) -> None:
        import llama_py
        from ggml_py import registry

        device = registry.device("cpu")
        device.repack = repack
        device.set_threads(threads)
        self.model = llama_py.load(model, "cpu")
        self.ctx = self.model.context(n_ctx, n_batch=n_batch, n_ubatch=n_ubatch, n_threads=threads)
        self.n_vocab, self.n_batch = self.ctx.n_vocab, n_batch

    def clear(self) -> None:
        self.ctx.memory.clear(False)

    def decode(self, tokens: Sequence[int]) -> Any:
        """The last token's logits."""
        return self.ctx.decode(tokens)[-1]


class Peer:
    """llama.cpp through llama-cpp-python's low-level binding, in a worker process."""

    def __init__(
        self, model: str, threads: int, repack: bool, n_ctx: int, n_batch: int, n_ubatch: int
    ) -> None:
        import llama_cpp

        self.lib = llama_cpp
        self.log = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self.log, None)
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers, params.use_extra_bufts = 0, repack
        self.model = llama_cpp.llama_model_load_from_file(model.encode(), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {model}")
        how = llama_cpp.llama_context_default_params()
        how.n_ctx, how.n_batch, how.n_ubatch = n_ctx, n_batch, n_ubatch
        how.n_threads = how.n_threads_batch = threads
        self.ctx = llama_cpp.llama_init_from_model(self.model, how)
        vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.n_vocab, self.n_batch = llama_cpp.llama_vocab_n_tokens(vocab), n_batch

    def clear(self) -> None:
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.ctx), False)

    def decode(self, tokens: Sequence[int]) -> Any:
        """The last token's logits."""
        array = (self.lib.llama_token * len(tokens))(*tokens)
        code = self.lib.llama_decode(self.ctx, self.lib.llama_batch_get_one(array, len(tokens)))
        if code:
            raise RuntimeError(f"llama_decode gave {code}")
        self.lib.llama_synchronize(self.ctx)
        return self.lib.llama_get_logits_ith(self.ctx, -1)


ENGINES: dict[str, type[Ours] | type[Peer]] = {"ours": Ours, "peer": Peer}


def serve(engine: str) -> None:
    """The worker: a request a line on stdin, an answer a line on what stdout was at the start."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    runner: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "load":
                runner = ENGINES[engine](**request["how"])
                answer: Any = None
            else:
                answer = WORK[request["do"]](runner, request["n"])
            reply = {"answer": answer}
        except Exception as e:  # told to the parent, which stops
            reply = {"error": f"{type(e).__name__}: {e}"}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


def prompt(engine: Ours | Peer, n: int) -> float:
    """Seconds for a prompt of n random tokens, in batches."""
    tokens = random_tokens(n, engine.n_vocab)
    engine.clear()
    start = time.perf_counter()
    for i in range(0, n, engine.n_batch):
        engine.decode(tokens[i : i + engine.n_batch])
    return time.perf_counter() - start


def generate(engine: Ours | Peer, n: int) -> float:
    """Seconds for n random tokens, one by one."""
    tokens = random_tokens(n, engine.n_vocab)
    engine.clear()
    start = time.perf_counter()
    for token in tokens:
        engine.decode([token])
    return time.perf_counter() - start


def check(engine: Ours | Peer, n: int) -> int:
    """The most likely token after a fixed prompt."""
    engine.clear()
    logits = engine.decode(CHECKED)
    return max(range(engine.n_vocab), key=lambda i: logits[i])


def random_tokens(n: int, n_vocab: int) -> list[int]:
    """The same for every engine and every run (a linear congruential generator)."""
    state, tokens = 1, []
    for _ in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        tokens.append((state >> 33) % n_vocab)
    return tokens


WORK: dict[str, Callable[[Ours | Peer, int], Any]] = {
    "pp": prompt, "tg": generate, "check": check,
}  # fmt: skip


class WorkerError(Exception):
    """An engine does not do what it is asked."""


@dataclass
class Worker:
    """The parent's end of a worker."""

    name: str
    engine: str
    python: str
    process: subprocess.Popen[str] = field(init=False)

    def __enter__(self) -> Worker:
        command = [self.python, __file__, "--worker", self.engine]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(BrokenPipeError):  # it has ended already
            pipe(self.process.stdin).close()
        self.process.wait()

    def ask(self, do: str, n: int = 0, **more: Any) -> Any:
        """What the worker answers; WorkerError if it cannot."""
        stdin = pipe(self.process.stdin)
        try:
            stdin.write(json.dumps({"do": do, "n": n, **more}) + "\n")
            stdin.flush()
        except BrokenPipeError:
            pass  # told below
        line = pipe(self.process.stdout).readline()
        if not line:
            raise WorkerError(f"{self.name}: the worker died, exit status {self.process.wait()}")
        reply = json.loads(line)
        if "error" in reply:
            raise WorkerError(f"{self.name}: {reply['error']}")
        return reply["answer"]


def pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


@dataclass(frozen=True)
class Row:
    """One compared test. Rates in tokens per second, medians."""

    threads: int
    test: str
    rates: dict[str, float]

    @property
    def ratio(self) -> float:
        """Ours to the better one of llama.cpp."""
        best = max(rate for name, rate in self.rates.items() if name != "ours")
        return self.rates["ours"] / best


def compare(args: argparse.Namespace, threads: int) -> Iterator[Row]:
    """All tests with so many threads."""
    kinds = [("pp", n) for n in args.prompt if n] + [("tg", n) for n in args.gen if n]
    how = {
        "model": str(Path(args.model).resolve()), "threads": threads, "n_batch": args.batch,
        "n_ubatch": args.ubatch, "n_ctx": max(n for _, n in kinds) + len(CHECKED),
    }  # fmt: skip
    with ExitStack() as stack:
        started = [
            stack.enter_context(worker)
            for worker in (
                Worker("ours", "ours", sys.executable),
                *(Worker(name, "peer", args.peer_python) for name in PEERS),
            )
        ]
        workers, chosen = running(started, how)
        warn_if_different(chosen)
        for kind, n in kinds:
            yield Row(threads, f"{kind}{n}", medians(workers, kind, n, args.repetitions))


def running(workers: Sequence[Worker], how: dict[str, Any]) -> tuple[list[Worker], dict[str, int]]:
    """Those that work, and the token that each chooses; WorkerError without ours or any peer."""
    tried = [(w, first_token(w, how)) for w in workers]
    chosen = {w.name: token for w, token in tried if isinstance(token, int)}
    failed = [(w, error) for w, error in tried if isinstance(error, WorkerError)]
    for worker, error in failed:
        if worker.engine == "ours" or len(failed) == len(PEERS):
            raise error
        print(f"left out: {error}", file=sys.stderr)
    return [w for w in workers if w.name in chosen], chosen


def first_token(worker: Worker, how: dict[str, Any]) -> int | WorkerError:
    """What it chooses after a fixed prompt, or why it does not work."""
    try:
        worker.ask("load", how={**how, "repack": worker.name != PEERS[1]})
        return int(worker.ask("check"))
    except WorkerError as e:
        return e


def medians(workers: Sequence[Worker], kind: str, n: int, repetitions: int) -> dict[str, float]:
    """Tokens per second of each worker; the first round only warms up."""
    seconds: dict[str, list[float]] = {w.name: [] for w in workers}
    for round in range(repetitions + 1):
        for worker in workers:
            taken = worker.ask(kind, n)
            if round:
                seconds[worker.name].append(taken)
            time.sleep(PAUSE)
    return {name: n / statistics.median(s) for name, s in seconds.items()}


def warn_if_different(tokens: dict[str, int]) -> None:
    """Fast and wrong is no result."""
    if len(set(tokens.values())) > 1:
        print(f"warning: the engines choose different tokens: {tokens}", file=sys.stderr)


def numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("-m", "--model", metavar="FILE")
    p.add_argument("--peer-python", default=sys.executable, metavar="PYTHON")
    p.add_argument("-p", "--prompt", type=numbers, default=[512], metavar="N,...")
    p.add_argument("-n", "--gen", type=numbers, default=[64], metavar="N,...")
    p.add_argument("-t", "--threads", type=numbers, default=[os.cpu_count() or 1], metavar="N,...")
    p.add_argument("-b", "--batch", type=int, default=2048, metavar="N")
    p.add_argument("-ub", "--ubatch", type=int, default=512, metavar="N")
    p.add_argument("-r", "--repetitions", type=int, default=5, metavar="N")
    p.add_argument("--worker", choices=ENGINES, help=argparse.SUPPRESS)
    args = p.parse_args()
    if not args.worker and not args.model:
        p.error("-m is needed")
    return args


def main() -> None:
    args = parse()
    if args.worker:
        serve(args.worker)
        return
    print("| threads |   test |     ours | repacked |    plain | ours / best |")
    print("| ------: | -----: | -------: | -------: | -------: | ----------: |")
    try:
        for threads in args.threads:
            for row in compare(args, threads):
                rates = " | ".join(shown(row.rates.get(name)) for name in ("ours", *PEERS))
                print(f"| {threads:7} | {row.test:>6} | {rates} | {row.ratio:11.3f} |", flush=True)
    except WorkerError as e:
        raise SystemExit(f"error: {e}") from None


def shown(rate: float | None) -> str:
    return f"{'-' if rate is None else format(rate, '.2f'):>8}"


if __name__ == "__main__":
    main()
