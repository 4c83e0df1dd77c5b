"""Compare the time to the first token of each turn in a conversation with llama-server's.

    python -m dev.compare.compare_turns -m model.gguf --server llama.cpp/build/bin/llama-server -t 2

The first turn has many tokens, each later turn a few; a response follows each turn. After turn
`--edit`, the previous responses lose their first half, like in a chat that omits reasoning. Both
engines get the same file and the same random token ids. Both use their caches: llama-py its
checkpoints, llama-server its context checkpoints. The table has the computed tokens of each turn,
and the ms to its first token. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shlex
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter, sleep
from typing import Any, NamedTuple, Protocol

import numpy as np

import llama_py
from ggml_py.backend import registry
from llama_py.decoding.prefix_cache import PrefixCache
from llama_py.loading.model import DEMO

STARTING = 120  # time limit in seconds for a server's start


class Turn(NamedTuple):
    """Result of a turn: computed prompt tokens, seconds to the first token, and the response."""

    n_computed: int
    seconds: float
    answer: list[int]


class Engine(Protocol):
    """Interface of an engine that generates responses to prompts."""

    def __call__(self, ids: Sequence[int], n: int) -> Turn:
        """Return a response of up to n tokens to a prompt."""


class Ours:
    """Engine of llama-py: a context with a prefix cache."""

    def __init__(self, model: llama_py.Model, n_ctx: int, threads: int) -> None:
        self.ctx = model.context(n_ctx, n_threads=threads)

    def __call__(self, ids: Sequence[int], n: int) -> Turn:
        start = perf_counter()
        told = PrefixCache.for_context(self.ctx).start(ids)
        answer, first = [], 0.0
        for piece in llama_py.stream(self.ctx, ids[told.n_reused :], max_tokens=n):
            first = first or perf_counter() - start
            answer += [] if piece.token is None else [piece.token]
        return Turn(told.n_computed, first, answer)


class Server:
    """Engine of llama-server, which receives and returns token ids."""

    def __init__(self, port: int) -> None:
        self.port = port

    @contextmanager
    def asked(self, method: str, path: str, body: str = "") -> Iterator[http.client.HTTPResponse]:
        """Send a request on a new connection, since the server closes idle connections."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            connection.request(method, path, body)
            yield connection.getresponse()
        finally:
            connection.close()

    def __call__(self, ids: Sequence[int], n: int) -> Turn:
        body = {
            "prompt": [*ids],
            "n_predict": n,
            "temperature": 0,
            "stream": True,
            "return_tokens": True,
            "cache_prompt": True,
            "id_slot": 0,
        }
        start, first, n_computed = perf_counter(), 0.0, 0
        answer: list[int] = []
        with self.asked("POST", "/completion", json.dumps(body)) as response:
            for event in events(response):
                first = first or perf_counter() - start
                answer += event.get("tokens", [])
                n_computed = event.get("timings", {}).get("prompt_n", n_computed)
        return Turn(n_computed, first, answer)

    def is_ready(self) -> bool:
        try:
            with self.asked("GET", "/health") as answer:
                return answer.status == 200
        except OSError:
            return False


def events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Yield the JSON of each server-sent event; RuntimeError for an error response."""
    if response.status != 200:
        raise RuntimeError(f"llama-server: {response.status} {response.read().decode()}")
    for line in response:
        if line.startswith(b"data: ") and b"[DONE]" not in line:
            yield json.loads(line[6:])


@contextmanager
def server(o: argparse.Namespace, arch: str, n_ctx: int) -> Iterator[Server]:
    """Run a server during the `with` block; RuntimeError if it does not start.

    The server stops at the model's training context, so this raises that limit to n_ctx.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        o.server,
        "-m",
        o.model,
        "-c",
        n_ctx,
        "-t",
        o.threads,
        "-np",
        1,
        "--port",
        port,
        "--override-kv",
        f"{arch}.context_length=int:{n_ctx}",
        *shlex.split(o.server_options),
    ]
    with subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            made, end = Server(port), perf_counter() + STARTING
            while not made.is_ready():
                if process.poll() is not None or perf_counter() > end:
                    raise RuntimeError(f"{o.server} does not start: {' '.join(map(str, command))}")
                sleep(0.1)
            yield made
        except http.client.RemoteDisconnected as e:
            raise RuntimeError(f"{o.server} ended during a response") from e
        finally:
            process.terminate()


def talk(engine: Engine, o: argparse.Namespace, n_vocab: int) -> list[Turn]:
    """Return the turns of a conversation; each response is part of the next prompts."""
    rng = np.random.default_rng(o.seed)
    turns: list[Turn] = []
    parts: list[list[int]] = []  # user messages and responses
    for n in [o.first] + [o.turn] * (o.turns - 1):
        if len(turns) == o.edit:
            parts[1::2] = [answer[len(answer) // 2 :] for answer in parts[1::2]]
        parts.append(rng.integers(n_vocab // 8, n_vocab // 2, n).tolist())
        turns.append(engine([id for part in parts for id in part], o.answer))
        parts.append(turns[-1].answer)
    return turns


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    p.add_argument("-m", "--model", help="GGUF file (default: the bundled demo model)")
    p.add_argument("--server", help="llama-server program (default: measure llama-py only)")
    p.add_argument("--server-options", default="", help="for llama-server, such as --no-repack")
    p.add_argument("--first", type=int, default=4000, help="tokens of the first turn")
    p.add_argument("--turn", type=int, default=40, help="tokens of each later turn")
    p.add_argument("--answer", type=int, default=24, help="tokens per response")
    p.add_argument("--turns", type=int, default=10)
    p.add_argument("--edit", type=int, default=-1, help="number of turns before responses are cut")
    p.add_argument("-t", "--threads", type=int, default=2)
    p.add_argument("--seed", type=int, default=1)
    o = p.parse_args(argv)
    o.model = o.model or str(DEMO)
    return o


def table(ours: Sequence[Turn], theirs: Sequence[Turn] | None) -> None:
    more = " | llama-server: computed | ms | ours / theirs" if theirs else ""
    print(f"| turn | computed | ms{more} |")
    print(f"|---|---|---{'|---|---|---' if theirs else ''}|")
    for i, turn in enumerate(ours):
        cells = [f"{i + 1}", f"{turn.n_computed}", f"{turn.seconds * 1e3:.1f}"]
        if theirs:
            other = theirs[i]
            ratio = other.seconds / turn.seconds
            cells += [f"{other.n_computed}", f"{other.seconds * 1e3:.1f}", f"x{ratio:.2f}"]
        print(f"| {' | '.join(cells)} |")


def main(argv: Sequence[str] | None = None) -> int:
    o = options(argv)
    n_ctx = o.first + o.turns * (o.turn + o.answer) + 256
    registry.device("cpu").set_threads(o.threads)
    with llama_py.load(o.model) as model:
        n_vocab, arch = model.hparams.n_vocab, model.arch
        talk(Ours(model, n_ctx, o.threads), o, n_vocab)  # the first run compiles kernels
        ours = talk(Ours(model, n_ctx, o.threads), o, n_vocab)
    theirs = None
    if o.server:
        with server(o, arch, n_ctx) as made:
            theirs = talk(made, o, n_vocab)
    table(ours, theirs)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
