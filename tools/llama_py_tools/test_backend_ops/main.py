"""Command line of test-backend-ops. Backends are imported only when they are to be run."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llama_py_tools.test_backend_ops.devices import find_devices
from llama_py_tools.test_backend_ops.filters import select

if TYPE_CHECKING:
    from ggml_py.backend import Device
    from llama_py_tools.test_backend_ops.case import Case
    from llama_py_tools.test_backend_ops.report import Report
    from llama_py_tools.test_backend_ops.run import Outcome

EPILOG = """examples:
  test-backend-ops -o ADD,MUL_MAT
  test-backend-ops -o RMS_NORM -p 'eps=1e-06.*v=1'
  test-backend-ops -b cpu -o 'SCALE(type=f32,ne=[10,10,10,10],scale=2,bias=0,inplace=0)'
  test-backend-ops -b cpu --against ggml -j 2
  test-backend-ops perf -o 'MUL_MAT.*'
  test-backend-ops perf -b cpu --against ggml -t 2
  test-backend-ops support --output markdown
"""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="test-backend-ops",
        description="Compare every op of every backend with a judge.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument(
        "mode", nargs="?", choices=("test", "perf", "support"), default="test",
        help="test (default): compare values; perf: time; support: list what backends can run",
    )  # fmt: skip
    p.add_argument(
        "--against", choices=("ref", "cpu", "ggml"),
        help="the judge: the NumPy reference (default), the CPU backend, or llama.cpp's libggml "
        "(needs llama-cpp-python); in perf mode, whom to time beside the backend, by turns",
    )  # fmt: skip
    p.add_argument("-o", dest="ops", metavar="OP,..", help="op names, regexes or printed cases")
    p.add_argument("-b", dest="backend", metavar="BACKEND", help="only this backend or device")
    p.add_argument("-p", dest="params", metavar="REGEX", help="only cases whose parameters match")
    p.add_argument(
        "--output", choices=("console", "csv", "json", "sql", "markdown"), default="console",
        help="markdown (support mode): the table of docs/ops.md",
    )  # fmt: skip
    p.add_argument("--list-ops", action="store_true", help="list all ops and exit")
    p.add_argument("--show-coverage", action="store_true", help="list ops with and without cases")
    p.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the inputs (default 0)"
    )
    p.add_argument(
        "-j", dest="processes", type=_count, default=1, metavar="N",
        help="processes that share the cases (test mode)",
    )  # fmt: skip
    p.add_argument("-t", "--threads", type=int, metavar="N", help="host threads of the backend")
    return p


def _count(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"needs a number from 1 on; got {text!r}")
    return int(text)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    p = parser()
    args = p.parse_args(argv)
    if args.processes > 1 and args.mode != "test":
        p.error(f"-j is for test mode; {args.mode} runs in one process")
    if args.mode == "test":
        args.against = args.against or "ref"
    if args.output == "markdown" and args.mode != "support":
        p.error("--output markdown is for support mode")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """0 if every backend passed, 1 if not, 2 on wrong usage."""
    args = parse(argv)
    from ggml_py.errors import GGMLError

    try:
        if args.list_ops:
            return list_ops()
        if args.show_coverage:
            return show_coverage()
        return run(args)
    except (GGMLError, re.error) as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader has left; nothing more may reach stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def list_ops() -> int:
    from ggml_py.ops.registry import OPS

    print("GGML operations:")
    print("\n".join(f"  {name}" for name in sorted(OPS)))
    print(f"\nTotal: {len(OPS)} operations")
    return 0


def show_coverage() -> int:
    from ggml_py.ops.registry import OPS
    from llama_py_tools.test_backend_ops.cases import all_cases

    tested = {c.op for c in all_cases()}
    computed = {name for name, spec in OPS.items() if not spec.view}
    for title, names, mark in (
        ("Operations covered by tests", computed & tested, "✓"),
        ("Operations without tests", computed - tested, "✗"),
    ):
        print(f"{title} ({len(names)}):")
        print("".join(f"  {mark} {name}\n" for name in sorted(names)))
    return 0


def run(args: argparse.Namespace) -> int:
    from llama_py_tools.test_backend_ops.judges import judge
    from llama_py_tools.test_backend_ops.report import REPORTS

    if args.against:
        judge(args.against)  # if it is missing, that comes before any output
    report = REPORTS[args.output]()
    cases = select(args.ops, args.params, args.mode == "perf")
    devices = find_devices(args.backend, args.mode)
    report.start(len(devices))
    n_ok = 0
    for i, device in enumerate(devices):
        if args.backend is None and (why := why_skipped(device, args)):
            report.device(i, len(devices), device, why)
            n_ok += 1
            continue
        if args.threads:
            device.set_threads(args.threads)
        report.device(i, len(devices), device)
        ok = run_device(device, cases, args, report)
        report.status(device, ok)
        n_ok += ok
    report.finish(n_ok, len(devices))
    return 0 if n_ok == len(devices) else 1


def why_skipped(device: Device, args: argparse.Namespace) -> str:
    """Why a device is not tested unless it is asked for by name."""
    if device.kind in ("ref", "null"):
        return f"Skipping {device.kind} backend"
    if args.mode == "test" and device.name == args.against:
        return "Skipping the judge"
    return ""


def run_device(device: Device, cases: list[Case], args: argparse.Namespace, report: Report) -> bool:
    if args.mode == "test":
        return run_tests(device, cases, args, report)
    rival = rival_of(args) if args.mode == "perf" else None
    for case in cases:
        report_one(args.mode, device, case, args.seed, report, rival)
    return True


def rival_of(args: argparse.Namespace) -> Device | None:
    """Whom perf mode times beside a device, with as many threads."""
    from llama_py_tools.test_backend_ops.judges import judge

    if not args.against:
        return None
    rival = judge(args.against)
    rival.set_threads(args.threads or os.cpu_count() or 1)
    return rival


def run_tests(device: Device, cases: list[Case], args: argparse.Namespace, report: Report) -> bool:
    from llama_py_tools.test_backend_ops.report import record
    from llama_py_tools.test_backend_ops.totals import Totals

    totals = Totals(args.against, command(device, args))
    for case, outcome in zip(cases, outcomes(device, cases, args), strict=True):
        report.record(record(case, device, "test", outcome))
        totals.add(case, outcome)
    report.summary(totals)
    return not totals.failed


def command(device: Device, args: argparse.Namespace) -> list[str]:
    """What runs cases on the device as now: its inputs are the same too."""
    options = ["-b", device.name]
    options += ["--against", args.against] if args.against != "ref" else []
    options += ["--seed", str(args.seed)] if args.seed else []
    options += ["-t", str(args.threads)] if args.threads else []
    return ["test-backend-ops", *options]


def outcomes(device: Device, cases: list[Case], args: argparse.Namespace) -> Iterator[Outcome]:
    """Of each case, in order."""
    from llama_py_tools.test_backend_ops.judges import judge
    from llama_py_tools.test_backend_ops.run import evaluate, warm_up
    from llama_py_tools.test_backend_ops.task import Task, in_processes

    against = judge(args.against)
    warm_up(cases, device, show_progress if sys.stderr.isatty() else None)
    if args.processes > 1:
        task = Task(device.name, args.against, args.ops, args.params, args.seed, args.threads)
        yield from in_processes(task, len(cases), args.processes)
    else:
        yield from (evaluate(case, device, against, args.seed) for case in cases)


def show_progress(done: int, total: int, what: str) -> None:
    print(f"\r\033[Kcompiling {done}/{total} {what}", end="", file=sys.stderr, flush=True)
    if done == total:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def report_one(
    mode: str, device: Device, case: Case, seed: int, report: Report, rival: Device | None
) -> None:
    """One case in perf or support mode."""
    from llama_py_tools.test_backend_ops.report import record
    from llama_py_tools.test_backend_ops.run import Outcome, Status, why_not
    from llama_py_tools.test_backend_ops.timing import measure

    reason = why_not(case, device)
    outcome = Outcome(Status.NOT_SUPPORTED, reason) if reason else Outcome(Status.OK)
    timing = measure(case, device, seed, rival) if mode == "perf" and not reason else None
    report.record(record(case, device, mode, outcome, timing))
