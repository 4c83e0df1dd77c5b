"""Command line of test-backend-ops. Backends are imported only before they run."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from llama_py.params.option import Params, option
from llama_py.params.rules import integers
from llama_py.params.texts import above_zero
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.streams import drop_stdout, open_streams, reader_left
from llama_py_tools.test_backend_ops.devices import find_devices
from llama_py_tools.test_backend_ops.filters import select

if TYPE_CHECKING:
    from ggml_py.backend import Device
    from llama_py_tools.test_backend_ops.case import Case
    from llama_py_tools.test_backend_ops.report import CaseReport
    from llama_py_tools.test_backend_ops.run import Outcome

COMPARING = ("test", "grad")

EPILOG = """examples:
  test-backend-ops -o ADD,MUL_MAT
  test-backend-ops -o RMS_NORM -p 'eps=1e-06.*v=1'
  test-backend-ops -b cpu -o 'SCALE(type=f32,ne=[10,10,10,10],scale=2,bias=0,inplace=0)'
  test-backend-ops -b cpu --against ggml -j 2
  test-backend-ops grad -b cpu -o MUL_MAT
  test-backend-ops perf -o 'MUL_MAT.*'
  test-backend-ops perf -b cpu --against ggml -t 2
  test-backend-ops support -b cpu,opencl --output markdown
"""


class HarnessParams(Params):
    """Options of the test run: mode, device and reference implementation."""

    group = "test"

    mode: str = option(
        "test",
        "mode",
        "test: compare values; grad: compare gradients with finite differences; perf: measure"
        " times; support: list the ops that backends can run",
        choices=("test", "grad", "perf", "support"),
        nargs="?",
    )
    against: str = option(
        "",
        "--against",
        "reference implementation: NumPy (ref, default), the CPU backend (cpu), or llama.cpp's"
        " libggml (ggml, needs llama-cpp-python); perf mode: second implementation to time,"
        " interleaved",
        choices=("ref", "cpu", "ggml"),
        env="",
    )
    ops: str | None = option(
        None, "-o", "op names, regular expressions or printed cases", metavar="OP,.."
    )
    backend: str | None = option(
        None, "-b", "backends or devices to test (default: all)", metavar="BACKEND,.."
    )
    params: str | None = option(
        None, "-p", "regular expression for the parameters of cases", metavar="REGEX"
    )
    test_file: str = option(
        "",
        "--test-file",
        "file with nodes to test, from llama.cpp's test-export-graph-ops or `llama-py-graph"
        " dump --format ops`",
        metavar="FILE",
        env="",
    )
    output: str = option(
        "console",
        "--output",
        "output format; markdown (support mode): the table of docs/ops.md",
        choices=("console", "csv", "json", "sql", "markdown"),
        env="",
    )
    list_ops: bool = option(False, "--list-ops", "list all ops and exit", env="")
    show_coverage: bool = option(
        False, "--show-coverage", "list ops with and without cases", env=""
    )
    seed: int = option(0, "--seed", "random seed of the inputs", env="")
    processes: int = option(
        1, "-j", "number of parallel processes (test and grad mode)", check=integers(1)
    )
    threads: int | None = option(
        None,
        "-t --threads",
        "number of host threads of the backend",
        parse=above_zero,
        check=integers(1),
        env="",
    )


def parser() -> OptionParser:
    p = OptionParser(
        "test-backend-ops",
        description="Compare every op of every backend with a reference implementation.",
        epilog=EPILOG,
    )
    p.add(HarnessParams)
    return p


def parse(argv: Sequence[str] | None) -> HarnessParams:
    p = parser()
    o = read(p.parse_args(argv), HarnessParams)
    compares = o.mode in COMPARING
    if o.processes > 1 and not compares:
        p.error(f"-j is for test and grad mode; {o.mode} runs in one process")
    if o.output == "markdown" and o.mode != "support":
        p.error("--output markdown is for support mode")
    return replace(o, against="ref") if compares and not o.against else o


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tests; return 0 if every backend passed, 1 if not, 2 on wrong usage."""
    o = parse(argv)
    open_streams()
    from ggml_py.errors import GGMLError

    try:
        if o.list_ops:
            return list_ops()
        if o.show_coverage:
            return show_coverage()
        return run(o)
    except (GGMLError, re.error) as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    except OSError as e:
        if not reader_left(e):
            raise
        drop_stdout()
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


def run(o: HarnessParams) -> int:
    from llama_py_tools.test_backend_ops.judges import judge
    from llama_py_tools.test_backend_ops.report import REPORTS

    if o.against:
        judge(o.against)  # report a missing reference before any output
    report = REPORTS[o.output]()
    cases = select(o.ops, o.params, o.mode == "perf", o.test_file)
    devices = find_devices(o.backend, o.mode)
    report.start(len(devices))
    n_ok = 0
    for i, device in enumerate(devices):
        if o.backend is None and (why := why_skipped(device, o)):
            report.device(i, len(devices), device, why)
            n_ok += 1
            continue
        if o.threads:
            device.set_threads(o.threads)
        report.device(i, len(devices), device)
        ok = run_device(device, cases, o, report)
        report.status(device, ok)
        n_ok += ok
    report.finish(n_ok, len(devices))
    return 0 if n_ok == len(devices) else 1


def why_skipped(device: Device, o: HarnessParams) -> str:
    """Return the reason why a device is tested only by name."""
    if device.kind in ("ref", "null"):
        return f"Skipping {device.kind} backend"
    if o.mode in COMPARING and device.name == o.against:
        return "Skipping the judge"
    return ""


def run_device(device: Device, cases: list[Case], o: HarnessParams, report: CaseReport) -> bool:
    if o.mode in COMPARING:
        return run_tests(device, cases, o, report)
    rival = find_rival(o) if o.mode == "perf" else None
    for case in cases:
        report_one(o.mode, device, case, o.seed, report, rival)
    return True


def find_rival(o: HarnessParams) -> Device | None:
    """Return the device that perf mode times for comparison, with the same number of threads."""
    from llama_py_tools.test_backend_ops.judges import judge

    if not o.against:
        return None
    rival = judge(o.against)
    rival.set_threads(o.threads or os.cpu_count() or 1)
    return rival


def run_tests(device: Device, cases: list[Case], o: HarnessParams, report: CaseReport) -> bool:
    from llama_py_tools.test_backend_ops.report import record
    from llama_py_tools.test_backend_ops.totals import Totals

    totals = Totals(o.against, command(device, o))
    for case, outcome in zip(cases, outcomes(device, cases, o), strict=True):
        report.record(record(case, device, o.mode, outcome))
        totals.add(case, outcome)
    report.summary(totals)
    return not totals.failed


def command(device: Device, o: HarnessParams) -> list[str]:
    """Return the command that runs cases on the device with the same inputs."""
    options = ["-b", device.name]
    options += ["--against", o.against] if o.against != "ref" else []
    options += ["--test-file", o.test_file] if o.test_file else []
    options += ["--seed", str(o.seed)] if o.seed else []
    options += ["-t", str(o.threads)] if o.threads else []
    return ["test-backend-ops", *([] if o.mode == "test" else [o.mode]), *options]


def outcomes(device: Device, cases: list[Case], o: HarnessParams) -> Iterator[Outcome]:
    """Yield the outcome of each case, in order."""
    from llama_py_tools.test_backend_ops.judges import judge
    from llama_py_tools.test_backend_ops.run import warm_up
    from llama_py_tools.test_backend_ops.task import BENCHES, EVALUATE, CaseTask, in_processes

    against = judge(o.against)
    warm_up(cases, device, show_progress if sys.stderr.isatty() else None, BENCHES[o.mode])
    if o.processes > 1:
        task = CaseTask(
            o.mode, device.name, o.against, o.test_file, o.ops, o.params, o.seed, o.threads
        )
        yield from in_processes(task, len(cases), o.processes)
    else:
        evaluate = EVALUATE[o.mode]
        yield from (evaluate(case, device, against, o.seed) for case in cases)


def show_progress(done: int, total: int, what: str) -> None:
    print(f"\r\033[Kcompiling {done}/{total} {what}", end="", file=sys.stderr, flush=True)
    if done == total:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def report_one(
    mode: str, device: Device, case: Case, seed: int, report: CaseReport, rival: Device | None
) -> None:
    """Report one case in perf or support mode."""
    from llama_py_tools.test_backend_ops.report import record
    from llama_py_tools.test_backend_ops.run import Outcome, Status, why_not
    from llama_py_tools.test_backend_ops.timing import measure

    reason = why_not(case, device)
    outcome = Outcome(Status.NOT_SUPPORTED, reason) if reason else Outcome(Status.OK)
    timing = measure(case, device, seed, rival) if mode == "perf" and not reason else None
    report.record(record(case, device, mode, outcome, timing))
