#!/usr/bin/env python3
"""Measure a model on two machines over links of several speeds, and compare with predictions.

    python -m dev.compare.compare_links -m model.gguf [--latency 0.1,1,5] [--rate 0.1,1,10]
        [--peer-bench llama-bench --rpc-server ggml-rpc-server] [-p 64] [-n 16] [-r 2] [-t 1]
    python -m dev.compare.compare_links -m model.gguf --overhead      # cost of ranks, no link

Variants: pipeline parallelism (pp=2), tensor parallelism (tp=2), llama.cpp's RPC backend with the
same split, and the prediction of `llama-py-bench --predict`. The machines are network namespaces of
this host. Links use netem, or a program if the kernel lacks netem (links/delayed.py). Latency is
one way, in ms; the rate is in Gbit/s. Each machine has -t threads, so the host needs 2 * t cores. A
link that is a program needs another core. `check` compares the text over the slowest link with the
text of one process. Needs root, iproute2 and `pip install '.[mpi]'`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from dev.compare.links.delayed import DEVICE
from dev.compare.links.spaces import ADDRESSES, Spaces, Speed, linked
from dev.compare.links.turns import TESTS, Player, rate_kept, taken

ROOT = Path(__file__).parents[2]


if TYPE_CHECKING:
    from llama_py_tools.bench.predict.cost import Link

PROGRAM = "import sys; from llama_py_tools.start import {0}; sys.exit({0}())"
RPC_PORT = 50052
TIMEOUT = 600
REMOTE_SHELL = """#!/bin/sh
# mpiexec starts this script in place of ssh: [options] HOST COMMAND
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1; shift
case $host in {address}) space={first};; *) space={second};; esac
exec ip netns exec $space sh -c "$*"
"""


def environment() -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "backends"), str(ROOT / "apps")]
    old = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, *([old] if old else [])])}


def output(command: Sequence[str], **env: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        stdin=subprocess.DEVNULL,
        env={**environment(), **env},
    )
    if done.returncode:
        raise OSError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def mpiexec() -> str:
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec") or "mpiexec"


def on_ranks(spaces: Spaces, folder: Path, *program: str) -> str:
    """Run a Python program with one rank per namespace, connected only by the link."""
    shell = folder / "shell"
    first, second = spaces.names
    shell.write_text(REMOTE_SHELL.format(address=ADDRESSES[0], first=first, second=second))
    shell.chmod(0o755)
    launcher = [
        mpiexec(),
        "-launcher",
        "ssh",
        "-launcher-exec",
        str(shell),
        "-localhost",
        ADDRESSES[0],
        "-hosts",
        ",".join(ADDRESSES),
        "-n",
        "2",
    ]
    return output(
        spaces.command(0, *launcher, sys.executable, *program),
        UCX_TLS="tcp,self",
        UCX_NET_DEVICES=DEVICE,
    )


def rates(text: str) -> dict[str, float]:
    """Return tokens/s by split mode and `pp` or `tg`, from lines of JSON."""
    found = {}
    for line in text.splitlines():
        if line.startswith("{"):
            one = json.loads(line)
            test = "pp" if one["n_prompt"] else "tg"
            found[f"{one.get('split_mode', '')} {test}"] = float(median(one["samples_ts"]))
    return found


def bench_words(args: argparse.Namespace) -> list[str]:
    return [
        "-m",
        args.model,
        "-p",
        str(args.n_prompt),
        "-n",
        str(args.n_gen),
        "-r",
        str(args.repetitions),
        "-t",
        str(args.threads),
        "-o",
        "jsonl",
    ]


def ours(spaces: Spaces, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    how = ["-sm", "layer,graph", "-dev", "mpi0/mpi1"]
    program = PROGRAM.format("bench")
    return rates(on_ranks(spaces, folder, "-c", program, *bench_words(args), *how))


def theirs(spaces: Spaces, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Run llama-bench with half of the layers, and the output, on an RPC server.

    The server caches weights after their first transfer.
    """
    words = [args.rpc_server, "-H", ADDRESSES[1], "-p", str(RPC_PORT), "-c", "-t"]
    words.append(str(args.threads))
    env = {**environment(), "LLAMA_CACHE": str(folder / "rpc")}
    server = subprocess.Popen(
        spaces.command(1, *words), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        time.sleep(1)
        bench = [
            args.peer_bench,
            *bench_words(args),
            "--rpc",
            f"{ADDRESSES[1]}:{RPC_PORT}",
            "-ngl",
            str(layers(args.model) // 2 + 1),
        ]
        found = rates(output(spaces.command(0, *bench)))
    finally:
        server.kill()
        server.wait()
    return {f"rpc {name.split()[-1]}": value for name, value in found.items()}


def layers(path: str) -> int:
    from llama_py.fit.planning import PlannedModel, open_header, stand_ins

    return PlannedModel(open_header(path), stand_ins(["cpu"])).hparams.n_layer


def probed(spaces: Spaces) -> tuple[float, float]:
    """Measure TCP over the link; return the round-trip time in seconds, and bits/s."""
    probe = [sys.executable, "-m", "dev.compare.links.probe"]
    serving = subprocess.Popen(
        spaces.command(1, *probe, "serve", ADDRESSES[1]),
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        assert serving.stdout is not None
        serving.stdout.readline()
        there_and_back, rate = map(
            float, output(spaces.command(0, *probe, "ask", ADDRESSES[1])).split()
        )
    finally:
        serving.kill()
        serving.wait()
    return there_and_back, rate


def measured(spaces: Spaces, folder: Path, few: int, many: int) -> Link:
    """Measure a link between two ranks, with messages of `few` and `many` bytes."""
    told = on_ranks(spaces, folder, "-m", "dev.compare.links.exchange", "1", str(few), str(many))
    return link_of(told, few, many)


def link_of(told: str, few: int, many: int) -> Link:
    """Compute a link from the seconds of 1, `few` and `many` bytes, one way and both ways."""
    from llama_py_tools.bench.predict.cost import Link

    (empty, _), (_, short), (one_way, both) = (
        map(float, line.split()) for line in told.splitlines()
    )
    rate, ends = many / (one_way - empty), (many - few) / (both - short)
    # one direction can reach the rate of both directions, even if a pause of TCP hides this
    meeting = short - empty - few / ends
    return Link(empty, max(rate, ends), message=0.0, ends=ends, meeting=meeting)


class Predicted:
    """Predictions of the cost model, based on runs in one process."""

    def __init__(self, args: argparse.Namespace) -> None:
        from llama_py.fit.planning import PlannedModel, open_header, stand_ins
        from llama_py_tools.bench.bench import run_tests
        from llama_py_tools.bench.params import BenchParams
        from llama_py_tools.bench.predict import command

        o = BenchParams(
            model=(args.model,),
            n_prompt=(args.n_prompt,),
            n_gen=(args.n_gen,),
            threads=(args.threads,),
            repetitions=args.repetitions,
        )
        model = PlannedModel(open_header(args.model), stand_ins(["cpu"]))
        limits = command.machine_limits(o, args.model, model, run_tests)
        n, n_ctx = min(args.n_prompt, o.n_ubatch[0]), max(args.n_prompt, args.n_gen)
        self.n_prompt, self.n_batches = args.n_prompt, -(-args.n_prompt // n)
        self.many = command.batch_cost(model, limits, n, n_ctx)
        self.one = command.batch_cost(model, limits, 1, n_ctx)
        self._measure_beside(args)

    def _measure_beside(self, args: argparse.Namespace) -> None:
        """Measure the cost of an all-reduce without a link: two ranks' time minus each rank's time.

        Each rank's time is measured while another process computes, since both share the memory.
        """
        bench = [sys.executable, "-c", PROGRAM.format("bench"), *bench_words(args)]
        ranks = [mpiexec(), "-n", "2", *bench, "-sm", "layer,graph", "-dev", "mpi0/mpi1"]
        tokens = {"pp": args.n_prompt, "tg": 1}
        self.together = {  # seconds of two ranks without a link
            name: tokens[name.split()[1]] / rate for name, rate in rates(output(ranks)).items()
        }
        alone = self.alone
        self.handing = {  # seconds of commands and wake-ups, in addition to the layers
            test: max(self.together[f"layer {test}"] - n / alone[test], 0.0)
            for test, n in tokens.items()
        }
        beside, n = rates_beside(bench), sum(self.many.n_sums)
        many = self.together["graph pp"] - args.n_prompt / beside["pp"] / 2
        one = self.together["graph tg"] - 1 / beside["tg"] / 2
        self.many = replace(self.many, summing=max(many / n / self.n_batches, 0.0))
        self.one = replace(self.one, summing=max(one / n, 0.0))

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of one part of an all-reduce, for a token and for a prompt."""
        return self.one.row_bytes, self.many.row_bytes

    def of(self, link: Link) -> dict[str, float]:
        """Predict tokens/s over a link, at maximum the measured speed without a link.

        Ranks that alternate would otherwise seem faster: each has the whole memory bandwidth.
        """
        from llama_py_tools.bench.predict.cost import prompt, token

        found = {}
        for name, t, p in (("layer", 1, 2), ("graph", 2, 1)):
            many = prompt(self.many, link, t, p, self.n_batches)
            one = token(self.one, link, t, p)
            if p > 1:
                many, one = many + self.handing["pp"], one + self.handing["tg"]
            many = max(many, self.together[f"{name} pp"])
            one = max(one, self.together[f"{name} tg"])
            found[f"{name} pp"], found[f"{name} tg"] = self.n_prompt / many, 1 / one
        return found

    @property
    def alone(self) -> dict[str, float]:
        from llama_py_tools.bench.predict.cost import Link, prompt, token

        link = Link(0, 1)
        seconds = prompt(self.many, link, 1, 1, self.n_batches)
        return {"pp": self.n_prompt / seconds, "tg": 1 / token(self.one, link, 1, 1)}


def compare(args: argparse.Namespace, folder: Path) -> Iterator[str]:
    columns = ["layer pp", "layer tg", "graph pp", "graph tg"]
    peer = ["rpc pp", "rpc tg"] if args.peer_bench else []
    yield f"| link | as measured | one process | {' | '.join(columns + peer)} |"
    yield "|---|---|---|" + "---:|" * len(columns + peer)
    with warmed(args, folder):
        for speed in speeds(args):
            predicted = Predicted(args)  # predicted again, because a shared machine's speed varies
            one = predicted.alone
            sums = predicted.many.summing * 1e6, predicted.one.summing * 1e6
            alone = f"{one['pp']:.1f}, {one['tg']:.2f}; sums {sums[0]:.0f}, {sums[1]:.0f} us"
            alone += ", handing {pp:.4f}, {tg:.4f} s".format(**predicted.handing)
            with linked(speed) as spaces:
                link = measured(spaces, folder, *predicted.sizes)
                found, guess = ours(spaces, folder, args), predicted.of(link)
                if peer:
                    found |= theirs(spaces, folder, args)
                shown = [f"{found[c]:.2f} ({guess[c]:.2f})" for c in columns]
                shown += [f"{found[c]:.2f}" for c in peer]
                real = (
                    f"{link.latency * 1e3:.2f} ms, {link.rate / 1.25e8:.2f} Gbit/s; each way"
                    f" {(link.latency + link.meeting) * 1e3:.2f} ms, {link.ends / 1.25e8:.2f}"
                )
                yield f"| {speed.name} | {real} | {alone} | {' | '.join(shown)} |"
    yield (
        "pp and tg in tokens/s; sums: all-reduce of two ranks without a link. In brackets:"
        " prediction from measured messages between two ranks, one way and both ways at once, of"
        f" {predicted.many.row_bytes >> 10} KiB. Links by {spaces.how}."
    )


@contextmanager
def warmed(args: argparse.Namespace, folder: Path) -> Iterator[None]:
    """Fill the RPC server's weight cache over a link without delay."""
    if args.peer_bench:
        with linked(Speed(0.0, 1e11)) as spaces:
            theirs(spaces, folder, argparse.Namespace(**{**vars(args), "n_gen": 1, "n_prompt": 1}))
    yield


def speeds(args: argparse.Namespace) -> Iterator[Speed]:
    for ms in args.latency:
        for gbit in args.rate:
            yield Speed(ms / 1e3, gbit * 1e9)


def check(args: argparse.Namespace, folder: Path) -> int:
    """Check that generated text over a slow link equals the text of one process."""
    words = ["-m", args.model, "-p", "The sea is", "-n", "12", "--temp", "0", "-no-cnv", "-t", "1"]
    alone = output([sys.executable, "-c", PROGRAM.format("cli"), *words])
    with linked(Speed(max(args.latency) / 1e3, min(args.rate) * 1e9)) as spaces:
        there_and_back, rate = probed(spaces)
        print(f"{there_and_back * 1e3:.2f} ms round trip, {rate / 1e9:.3f} Gbit/s")
        for mode in ("layer", "graph"):
            text = on_ranks(spaces, folder, "-c", PROGRAM.format("cli"), *words, "-sm", mode)
            print(f"{mode}: {'the same text' if text == alone else f'{text!r}, not {alone!r}'}")
            if text != alone:
                return 1
        print(f"links by {spaces.how}: {spaces.busy_seconds:.2f} s of CPU")
    return 0


def overhead(args: argparse.Namespace) -> Iterator[str]:
    """Compare a run without MPI, one rank, and two ranks with all layers on the second.

    Each turn restarts all processes, since memory placement varies.
    """
    words = [args.model, *map(str, (args.n_prompt, args.n_gen, args.threads))]
    player = [sys.executable, "-m", "dev.compare.links.turns", *words]
    ways: Mapping[str, list[str]] = {
        "no MPI": [*player, "cpu"],
        "1 rank": [mpiexec(), "-n", "1", *player],
        "all on the other of 2": [mpiexec(), "-n", "2", *player, "mpi1"],
    }
    found = {test: {name: list[float]() for name in ways} for test in TESTS}
    for turn in range(args.turns):
        first = turn % len(ways)
        order = [*ways][first:] + [*ways][:first]
        with ExitStack() as stack:
            players = {
                name: stack.enter_context(Player(ways[name], environment())) for name in order
            }
            for test, of in taken(players, args.repetitions).items():
                for name, seconds in of.items():
                    found[test][name] += seconds
    for test, n in zip(TESTS, (args.n_prompt, args.n_gen), strict=True):
        base = found[test]["no MPI"]
        yield f"{test}: no MPI {n / median(base):.2f} t/s, " + ", ".join(
            "{} {:.1%} ({:.1%} to {:.1%})".format(name, *rate_kept(base, seconds))
            for name, seconds in found[test].items()
            if name != "no MPI"
        )
    yield f"medians of {len(base)} rounds, and quartiles"


def rates_beside(bench: Sequence[str]) -> dict[str, float]:
    """Return tokens/s of each of two processes that compute at the same time."""
    running = [
        subprocess.Popen(bench, stdout=subprocess.PIPE, text=True, env=environment())
        for _ in range(2)
    ]
    found: dict[str, list[float]] = {}
    for process in running:
        text, _ = process.communicate(timeout=TIMEOUT)
        if process.returncode:
            raise OSError(f"{' '.join(bench)} ended with {process.returncode}")
        for test, samples in every_rate(text).items():
            found.setdefault(test, []).extend(samples)
    return {test: median(samples) for test, samples in found.items()}


def every_rate(text: str) -> dict[str, list[float]]:
    """Return tokens/s of each repetition by `pp` and `tg`, from lines of JSON."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return {"pp" if one["n_prompt"] else "tg": one["samples_ts"] for one in lines}


def _arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("what", nargs="?", choices=("check",), help="compare texts instead of speeds")
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--latency", type=_floats, default=[0.1, 1.0, 5.0], help="one-way latency in ms")
    p.add_argument("--rate", type=_floats, default=[0.1, 1.0, 10.0], help="Gbit/s")
    p.add_argument("-p", "--n-prompt", type=int, default=64)
    p.add_argument("-n", "--n-gen", type=int, default=16)
    p.add_argument("-r", "--repetitions", type=int, default=2)
    p.add_argument("-t", "--threads", type=int, default=1)
    p.add_argument("--peer-bench", help="llama-bench with RPC support")
    p.add_argument("--rpc-server", help="ggml-rpc-server")
    p.add_argument("--overhead", action="store_true")
    p.add_argument("--turns", type=int, default=5, help="of --overhead")
    return p.parse_args()


def _floats(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def main() -> int:
    args = _arguments()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            if args.what == "check":
                return check(args, folder)
            for line in overhead(args) if args.overhead else compare(args, folder):
                print(line, flush=True)
        except (OSError, subprocess.SubprocessError) as e:
            print(f"error: {e}", file=sys.stderr)
            return 1
    print(f"{time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
