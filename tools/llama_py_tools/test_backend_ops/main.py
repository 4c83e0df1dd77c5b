"""Command line of test-backend-ops. Backends are imported only when they are to be run."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ggml_py.backend import Device
    from llama_py_tools.test_backend_ops.case import Case
    from llama_py_tools.test_backend_ops.report import Report

EPILOG = """examples:
  test-backend-ops -o ADD,MUL_MAT
  test-backend-ops -o RMS_NORM -p 'eps=1e-06.*v=1'
  test-backend-ops -b cpu -o 'SCALE(type=f32,ne=[10,10,10,10],scale=2,bias=0,inplace=0)'
  test-backend-ops perf -o 'MUL_MAT.*'
"""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="test-backend-ops",
        description="Compare every op of every backend with the reference.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument(
        "mode", nargs="?", choices=("test", "perf", "support"), default="test",
        help="test (default): compare values; perf: time; support: list what backends can run",
    )  # fmt: skip
    p.add_argument("-o", dest="ops", metavar="OP,..", help="op names, regexes or printed cases")
    p.add_argument("-b", dest="backend", metavar="BACKEND", help="only this backend or device")
    p.add_argument("-p", dest="params", metavar="REGEX", help="only cases whose parameters match")
    p.add_argument("--output", choices=("console", "csv", "json", "sql"), default="console")
    p.add_argument("--list-ops", action="store_true", help="list all ops and exit")
    p.add_argument("--show-coverage", action="store_true", help="list ops with and without cases")
    p.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the inputs (default 0)"
    )
    p.add_argument("-t", "--threads", type=int, metavar="N", help="host threads of the backend")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """0 if every backend passed, 1 if not, 2 on wrong usage."""
    args = parser().parse_args(argv)
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


def split_filter(text: str) -> list[str]:
    """At commas outside parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def matches(entry: str, case: Case) -> bool:
    """An exact op name, a printed case, or a regex found in the op's name."""
    if "(" in entry and entry.endswith(")") and entry.partition("(")[0].isidentifier():
        return entry == str(case)
    if re.fullmatch(r"[A-Z0-9_]+", entry):
        return entry == case.op
    return re.search(entry, case.op) is not None


def select(ops: str | None, params: str | None, perf: bool) -> list[Case]:
    """The cases that pass both filters; GGMLError if there is none."""
    from ggml_py.errors import GGMLError
    from llama_py_tools.test_backend_ops.cases import all_cases

    chosen = [c for c in all_cases() if c.perf == perf]
    if ops is not None:
        entries = split_filter(ops)
        chosen = [c for c in chosen if any(matches(e, c) for e in entries)]
    if params is not None:
        pattern = re.compile(params)
        chosen = [c for c in chosen if pattern.search(c.vars)]
    if not chosen:
        raise GGMLError("no case passes the filters; --show-coverage lists the ops that have cases")
    return chosen


def find_devices(name: str | None) -> list[Device]:
    """All devices of all installed backends, or those of one."""
    from ggml_py import registry
    from ggml_py.errors import BackendError

    names = registry.backend_names()
    if name is None:
        return [d for n in names for d in installed_devices(n)]
    if name in names:
        return list(registry.devices(name))
    if name.rstrip("0123456789") in names:
        return [registry.device(name)]
    raise BackendError(f"no backend named {name!r}; installed: {', '.join(names) or 'none'}")


def installed_devices(backend: str) -> Sequence[Device]:
    """The devices of a backend that was not asked for by name: none, and why, if it cannot load."""
    from ggml_py import registry
    from ggml_py.errors import BackendError

    try:
        return registry.devices(backend)
    except BackendError as e:
        print(f"{backend}: {e}", file=sys.stderr)
        return []


def run(args: argparse.Namespace) -> int:
    from llama_py_tools.test_backend_ops.report import REPORTS

    report = REPORTS[args.output]()
    cases = select(args.ops, args.params, args.mode == "perf")
    devices = find_devices(args.backend)
    report.start(len(devices))
    n_ok = 0
    for i, device in enumerate(devices):
        if args.backend is None and device.kind in ("ref", "null"):
            report.device(i, len(devices), device, f"Skipping {device.kind} backend")
            n_ok += 1
            continue
        if args.threads:
            device.set_threads(args.threads)
        report.device(i, len(devices), device)
        ok = run_device(args.mode, device, cases, args.seed, report)
        report.status(device, ok)
        n_ok += ok
    report.finish(n_ok, len(devices))
    return 0 if n_ok == len(devices) else 1


def run_device(mode: str, device: Device, cases: list[Case], seed: int, report: Report) -> bool:
    if mode == "test":
        return run_tests(device, cases, seed, report)
    for case in cases:
        report_one(mode, device, case, seed, report)
    return True


def run_tests(device: Device, cases: list[Case], seed: int, report: Report) -> bool:
    from ggml_py import registry
    from llama_py_tools.test_backend_ops.report import record
    from llama_py_tools.test_backend_ops.run import Status, evaluate, warm_up

    reference = registry.device("ref")
    warm_up(cases, device, show_progress if sys.stderr.isatty() else None)
    n_run, failed = 0, []
    for case in cases:
        outcome = evaluate(case, device, reference, seed)
        report.record(record(case, device, "test", outcome))
        n_run += outcome.status is not Status.NOT_SUPPORTED
        if outcome.status is Status.FAIL:
            failed.append(str(case))
    report.summary(device, n_run - len(failed), n_run, failed)
    return not failed


def show_progress(done: int, total: int, what: str) -> None:
    print(f"\r\033[Kcompiling {done}/{total} {what}", end="", file=sys.stderr, flush=True)
    if done == total:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def report_one(mode: str, device: Device, case: Case, seed: int, report: Report) -> None:
    """One case in perf or support mode."""
    from llama_py_tools.test_backend_ops.report import record
    from llama_py_tools.test_backend_ops.run import Outcome, Status, measure, why_not

    reason = why_not(case, device)
    outcome = Outcome(Status.NOT_SUPPORTED, reason) if reason else Outcome(Status.OK)
    timing = measure(case, device, seed) if mode == "perf" and not reason else None
    report.record(record(case, device, mode, outcome, timing))
