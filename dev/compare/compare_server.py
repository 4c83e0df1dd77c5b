#!/usr/bin/env python3
"""Compare llama-py-server with llama-server: same file, threads and requests, interleaved.

    python -m dev.compare.compare_server -m MODEL.gguf --peer LLAMA-SERVER -t 2 --clients 1,4,16
    python -m dev.compare.compare_server -m MODEL.gguf --peer LLAMA-SERVER -t 2 --agents 2

Each round sends the same requests to both servers. Prompts differ between rounds, so that no server
has them in its cache. A cell is the median of the rounds. Needs an idle machine, httpx and
`pip install '.[server]'`.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx

from dev.compare.load.client import Answer
from dev.compare.load.plans import Agents, Mixed
from dev.compare.load.servers import ours, running, theirs

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--peer", required=True, help="path of llama-server")
    parser.add_argument("--peer-options", default="", help="more llama-server options")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-c", "--ctx", type=int, help="context size of all sequences")
    parser.add_argument("--clients", default="", help="numbers of clients: 1,4,16")
    parser.add_argument("--each", type=int, default=4, help="requests per client")
    parser.add_argument("--agents", type=int, default=0, help="agents that take turns")
    parser.add_argument("--shared", type=int, default=4000, help="tokens that agents share")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    plans: list[Mixed | Agents] = [Mixed(int(n), args.each) for n in args.clients.split(",") if n]
    if args.agents:
        plans.append(Agents(args.agents, n_shared=args.shared))
    print(f"| {args.model} | | llama-py | llama.cpp | ratio |\n|---|---|---|---|---|")
    for plan in plans:
        _compare(plan, args)


def _compare(plan: Mixed | Agents, args: argparse.Namespace) -> None:
    n = plan.n_clients if isinstance(plan, Mixed) else plan.n_agents
    room = 1024 if isinstance(plan, Mixed) else args.shared + 1024
    n_ctx = args.ctx or n * room
    sizes = (args.model, n_ctx, n, args.threads)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        logs = Path(folder)
        commands = {
            "ours": ours(*sizes),
            "peer": theirs(args.peer, *sizes, args.peer_options.split()),
        }
        urls = {k: stack.enter_context(running(c, logs / k)) for k, c in commands.items()}
        asyncio.run(_warm(plan, urls))
        rounds: dict[str, list[list[float]]] = {name: [] for name in urls}
        for i in range(args.rounds):
            order = list(urls) if i % 2 == 0 else list(reversed(urls))
            for name in order:
                rounds[name].append(_figures(*asyncio.run(_timed(plan, urls[name], i + 1))))
    for k, (title, unit, more) in enumerate(COLUMNS):
        a, b = (statistics.median(r[k] for r in rounds[name]) for name in urls)
        ratio = a / b if more else b / a
        print(f"| {plan.name} | {title} | {a:.4g} {unit} | {b:.4g} {unit} | {ratio:.2f} |")
        sys.stdout.flush()


# Values of a round with their units; True if larger is better. Ratios above 1: llama-py is better.
COLUMNS = (
    ("throughput", "t/s", True),
    ("first token, p50", "ms", False),
    ("first token, p95", "ms", False),
    ("between tokens, p50", "ms", False),
    ("between tokens, p95", "ms", False),
    ("prompt tokens computed", "", False),
)


def _figures(answers: Sequence[Answer], seconds: float) -> list[float]:
    firsts = sorted(1e3 * a.first for a in answers)
    gaps = sorted(1e3 * gap for a in answers for gap in a.between)
    return [
        sum(len(a.ids) for a in answers) / seconds,
        _at(firsts, 0.5),
        _at(firsts, 0.95),
        _at(gaps, 0.5),
        _at(gaps, 0.95),
        float(sum(a.n_prompt - a.n_cached for a in answers)),
    ]


def _at(values: Sequence[float], part: float) -> float:
    """Return the value at quantile `part`."""
    return values[min(int(part * len(values)), len(values) - 1)]


async def _timed(plan: Mixed | Agents, url: str, seed: int) -> tuple[list[Answer], float]:
    async with httpx.AsyncClient(base_url=url, limits=LIMITS) as client:
        start = asyncio.get_running_loop().time()
        answers = await plan.run(client, seed)
        return answers, asyncio.get_running_loop().time() - start


async def _warm(plan: Mixed | Agents, urls: dict[str, str]) -> None:
    """Run a round without measurement, to compile kernels and to load files into memory."""
    small = Mixed(plan.n_clients, 1) if isinstance(plan, Mixed) else Agents(1, 2, 200)
    for url in urls.values():
        await _timed(small, url, 0)


if __name__ == "__main__":
    main()
