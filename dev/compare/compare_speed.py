"""Compare speed with llama.cpp and other engines on the same work; write a table.

    python -m dev.compare.compare_speed -m model.gguf --peer-python /path/to/venv/bin/python -t 1,2
    python -m dev.compare.compare_speed -m model.gguf --ik /path/to/ik_llama.cpp --matrix \\
        --json runs.jsonl --budget 30
    python -m dev.compare.compare_speed --table runs.jsonl --write docs/benchmarks.md

The peer's Python has llama-cpp-python. llama.cpp and ik_llama.cpp run with and without repacked
weights. Each engine is warm in a separate process. Runs alternate, so that a slow moment of the
machine affects all engines. A ratio compares our median with the best peer's; above 1, llama-py is
faster. A peer that cannot run, or cannot run a test, is omitted with a note.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dev.compare.speed import peer, plot, results, table
from dev.compare.speed.compare import Comparison
from dev.compare.speed.process import WorkerError
from dev.compare.speed.results import Record
from dev.compare.speed.test import Test, chosen, matrix, with_neighbours, with_types


def numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def words(text: str) -> list[str]:
    return text.split(",")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = os.cpu_count() or 1
    p.add_argument("-m", "--model", nargs="+", metavar="FILE", type=Path, default=[])
    p.add_argument("-p", "--prompt", type=numbers, default=[512], metavar="N,...")
    p.add_argument("-n", "--gen", type=numbers, default=[64], metavar="N,...")
    p.add_argument(
        "-d",
        "--depth",
        type=numbers,
        default=[0],
        metavar="N,...",
        help="depth: tokens in the KV cache before the test",
    )
    p.add_argument(
        "-npl",
        "--sequences",
        type=numbers,
        default=[],
        metavar="N,...",
        help="sequences decoded in one batch (like llama-batched-bench)",
    )
    p.add_argument(
        "-ntg",
        "--batched",
        type=int,
        default=64,
        metavar="N",
        help="tokens per sequence of -npl (default: %(default)s)",
    )
    p.add_argument(
        "--at-once",
        type=numbers,
        default=[],
        metavar="N,...",
        help="tokens per decode, like verifying a draft; 1 for comparison",
    )
    p.add_argument("-ctk", "--cache-type-k", type=words, default=["f16"], metavar="TYPE,...")
    p.add_argument("-ctv", "--cache-type-v", type=words, default=["f16"], metavar="TYPE,...")
    p.add_argument(
        "--busy",
        type=numbers,
        default=[0],
        metavar="N,...",
        help="background load: N processes that compute all the time",
    )
    p.add_argument(
        "--first",
        type=int,
        default=0,
        metavar="N",
        help="also the time to the first token after N tokens: new process, new context, and warm",
    )
    p.add_argument(
        "--not-compiled", action="store_true", help="use an empty kernel cache in cold runs"
    )
    p.add_argument(
        "--memory",
        type=int,
        default=0,
        metavar="N",
        help="also the peak resident memory of a prompt of N tokens",
    )
    p.add_argument(
        "--embeddings",
        action="store_true",
        help="embed prompts: llama-py and llama.cpp; needs -n 0",
    )
    p.add_argument(
        "--matrix",
        action="store_true",
        help="the full test matrix, instead of -p, -n, -d, -npl and --at-once",
    )
    p.add_argument(
        "-t",
        "--threads",
        type=numbers,
        metavar="N,...",
        help=f"default: {cores}; with --matrix 1,{cores}",
    )
    p.add_argument("-b", "--batch", type=int, default=2048, metavar="N")
    p.add_argument("-ub", "--ubatch", type=int, default=512, metavar="N")
    p.add_argument("-r", "--repetitions", type=int, default=5, metavar="N")
    peer.add_options(p)
    p.add_argument("--peers", type=words, metavar="NAME,...", help="run these peers only")
    p.add_argument("--json", type=Path, metavar="FILE", help="append the results to this file")
    p.add_argument(
        "--states",
        type=Path,
        metavar="DIR",
        help="save processed depths here, to reuse them for other thread counts, larger"
        " depths and later runs",
    )
    p.add_argument(
        "--budget",
        type=float,
        metavar="MINUTES",
        help="start no test after this time; skip tests that --json already has",
    )
    p.add_argument(
        "--table",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="print tables of earlier --json files; run no test",
    )
    p.add_argument("--write", type=Path, metavar="FILE.md", help="write the tables to a page")
    p.add_argument(
        "--plot", type=Path, metavar="FILE.svg", help="plot the ratios; needs matplotlib"
    )
    return p


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    p = parser()
    args = p.parse_args(arguments)
    if not (args.model or args.table):
        p.error("-m is needed")
    if args.states and not (args.states.is_dir() or not args.states.exists()):
        p.error(f"--states {args.states} is not a folder")
    if args.budget is not None and not args.json:
        p.error("--budget needs --json, which lists the finished tests")
    if args.threads is None:
        cores = os.cpu_count() or 1
        args.threads = sorted({1, cores}) if args.matrix else [cores]
    return args


def tests(args: argparse.Namespace) -> list[Test]:
    """Return the tests that the options select."""
    found = (
        matrix()
        if args.matrix
        else list(
            chosen(args.prompt, args.gen, args.depth, args.sequences, args.batched, args.at_once)
        )
    )
    if args.first:
        found += [Test(kind, args.first) for kind in ("warm", "new", "first")]
    if args.memory:
        found.append(Test("memory", args.memory))
    typed = with_types(found, args.cache_type_k, args.cache_type_v)
    return with_neighbours(typed, args.busy)


def measure(args: argparse.Namespace, failed: list[Path]) -> Iterator[Record]:
    """Yield all requested records at once when measured; add failing models to `failed`."""
    peers = peer.asked(args)
    if args.embeddings:
        peers = [replace(p, how={**p.how, "embeds": True}) for p in peers]
    if args.peers:
        peers = [p for p in peers if p.name in (peer.OURS, *args.peers)]
    known = list(results.read(args.json)) if args.budget and args.json.exists() else []
    done = {record.key for record in known}
    over = clock(args.budget)
    for model in args.model:
        lines = table.Table([p.name for p in peers])
        print(f"\n{model.name}\n", *lines.head, sep="\n", flush=True)
        try:
            for record in measure_one(args, model, peers, done, over):
                print(lines.row(record), flush=True)
                keep(record, args.json)
                yield record
        except WorkerError as e:
            print(f"error: {e}", file=sys.stderr)
            failed.append(model)


def measure_one(
    args: argparse.Namespace,
    model: Path,
    peers: Sequence[peer.Peer],
    done: set[results.Key],
    over: Callable[[], bool],
) -> Iterator[Record]:
    """Yield the tests of a model that are not `done`, until the time is `over`."""
    with kernels(args.not_compiled) as environment:
        for threads in args.threads:
            todo = [t for t in tests(args) if (model.name, threads, t) not in done]
            compared = Comparison(
                model.resolve(),
                threads,
                peers,
                args.batch,
                args.ubatch,
                args.repetitions,
                environment,
                over,
                cpu_name(),
                args.states,
            )
            if todo and not over():
                yield from compared.run(todo)


def clock(minutes: float | None) -> Callable[[], bool]:
    """Return a function that returns True once `minutes` have passed."""
    start = time.monotonic()
    return lambda: minutes is not None and time.monotonic() - start > 60 * minutes


def parts(args: argparse.Namespace) -> list[Record]:
    """Return the models' records in --json, including earlier runs; print the number missing."""
    names = [model.name for model in args.model]
    found = [r for r in results.read(args.json) if r.model in names] if args.json.exists() else []
    done = {record.key for record in found}
    wanted = [(name, n, test) for name in names for n in args.threads for test in tests(args)]
    left = sum(key not in done for key in wanted)
    if left:
        print(
            f"{left} of {len(wanted)} tests are left; repeat the command to continue",
            file=sys.stderr,
        )
    return found


@contextmanager
def kernels(none: bool) -> Iterator[dict[str, str]]:
    """Yield the environment of a cold start; with `none`, without compiled kernels."""
    if not none:
        yield {}
        return
    with tempfile.TemporaryDirectory() as empty:
        yield {"LLAMA_PY_CACHE": empty}


def keep(record: Record, path: Path | None) -> None:
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(record.line() + "\n")


def cpu_name() -> str:
    from ggml_py.machine.host import cpu_name

    return cpu_name()


def tell(records: Sequence[Record], args: argparse.Namespace) -> None:
    """Print the notes after the tables, and write the page and the picture."""
    if args.table:
        print(table.page(records))
    else:
        print("", *table.notes(records), sep="\n")
    old = args.write.read_text("utf-8") if args.write and args.write.exists() else ""
    picture = args.plot or (table.has_picture(old) and args.write and plot_beside(args.write))
    if picture and (args.plot or plot.available()):
        plot.draw(records, picture)
    elif picture:
        print("no picture: matplotlib is not installed (pip install '.[plot]')", file=sys.stderr)
        picture = None
    if args.write:
        args.write.write_text(table.renewed(old, records, picture.name if picture else ""), "utf-8")


def plot_beside(page: Path) -> Path:
    return page.with_suffix(".svg")


def main(arguments: Sequence[str] | None = None) -> None:
    args = parse(arguments)
    failed: list[Path] = []
    try:
        if args.table:
            found = [record for path in args.table for record in results.read(path)]
        else:
            found = list(measure(args, failed))
        if args.budget:
            found = parts(args)
        tell(results.merged(found), args)
    except (OSError, ValueError) as e:
        raise SystemExit(f"error: {e}") from None
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
