"""Reports of test-backend-ops: console lines like llama.cpp's, CSV, JSON and SQL."""

from __future__ import annotations

import csv
import json
import sys
import time
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ggml_py.backend import Device
from ggml_py.machine.release import VERSION
from llama_py_tools.command.streams import in_colour
from llama_py_tools.test_backend_ops.case import Case
from llama_py_tools.test_backend_ops.markdown import table
from llama_py_tools.test_backend_ops.run import Outcome, Status
from llama_py_tools.test_backend_ops.timing import Timing
from llama_py_tools.test_backend_ops.totals import Totals


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(slots=True, kw_only=True)
class Record:
    """One case on one backend; the fields are llama.cpp's."""

    test_time: str = field(default_factory=_now)
    build_commit: str = VERSION
    backend_name: str
    op_name: str
    op_params: str
    test_mode: str
    supported: bool
    passed: bool
    error_message: str = ""
    time_us: float = 0.0
    flops: float = 0.0
    bandwidth_gb_s: float = 0.0
    memory_kb: int = 0
    n_runs: int = 0
    device_description: str = ""
    backend_reg_name: str = ""
    against_time_us: float = 0.0  # ours: of perf --against


def record(
    case: Case, device: Device, mode: str, outcome: Outcome, timing: Timing | None = None
) -> Record:
    r = Record(
        backend_name=device.name,
        op_name=case.op,
        op_params=case.vars,
        test_mode=mode,
        supported=outcome.status is not Status.NOT_SUPPORTED,
        passed=outcome.status in (Status.OK, Status.KNOWN),
        error_message=outcome.reason.strip(),
        device_description=device.description,
        backend_reg_name=device.name.rstrip("0123456789"),
    )
    if timing is not None:
        seconds = timing.time_us / 1e6
        r.time_us, r.n_runs, r.memory_kb = timing.time_us, timing.n_runs, timing.nbytes // 1024
        r.flops, r.against_time_us = timing.flops / seconds, timing.rival_us
        r.bandwidth_gb_s = 0.0 if timing.flops else timing.nbytes / seconds / 2**30
    return r


class CaseReport:
    """Interface of reports; only the console report prints backends and totals."""

    def start(self, n_devices: int) -> None:
        """Begin the report; called once, first."""

    def device(self, index: int, n_devices: int, device: Device, skipped: str = "") -> None:
        """Report the start of a device's test, or the reason for skipping it."""

    def record(self, r: Record) -> None:
        """Report a finished case."""

    def summary(self, totals: Totals) -> None:
        """Report a device's totals (test mode)."""

    def status(self, device: Device, ok: bool) -> None:
        """Report the end of a device's cases."""

    def finish(self, n_ok: int, n_devices: int) -> None:
        """Finish the report; called once, last."""


class Console(CaseReport):
    def __init__(self) -> None:
        self.colour = in_colour(sys.stdout)

    def paint(self, text: str, code: int) -> str:
        return f"\033[1;{code}m{text}\033[0m" if self.colour else text

    def verdict(self, ok: bool, good: str = "OK", bad: str = "FAIL") -> str:
        return self.paint(good, 32) if ok else self.paint(bad, 31)

    def start(self, n_devices: int) -> None:
        print(f"Testing {n_devices} devices\n")

    def device(self, index: int, n_devices: int, device: Device, skipped: str = "") -> None:
        print(f"Backend {index + 1}/{n_devices}: {device.name}")
        if skipped:
            print(f"  {skipped}")
            return
        free, total = device.memory()
        print(f"  Device description: {device.description}")
        print(f"  Device memory: {total >> 20} MB ({free >> 20} MB free)\n")

    def record(self, r: Record) -> None:
        text = {"perf": self._perf, "support": self._support}.get(r.test_mode, self._test)(r)
        print(f"  {r.op_name}({r.op_params}): {text}", flush=True)

    def _test(self, r: Record) -> str:
        if not r.supported:
            return f"not supported [{r.error_message}]"
        return f"{r.error_message} {self.verdict(r.passed)}".lstrip()

    def _support(self, r: Record) -> str:
        why = "" if r.supported else f" [{r.error_message}]"
        return self.verdict(r.supported, "SUPPORTED", "NOT SUPPORTED") + why

    def _perf(self, r: Record) -> str:
        if not r.supported:
            return "not supported"
        width = len(f"  {r.op_name}({r.op_params}): ")
        pad = " " * (-(width + 5) % 8 + 5)
        runs = f"{pad}    {r.n_runs:8d} runs - {r.time_us:8.2f} us/run - "
        if r.flops:
            speed = self.paint(_flops(r.flops) + "S", 34)
            text = f"{runs}{_flops(r.flops * r.time_us / 1e6)}/run - {speed}"
        else:
            speed = self.paint(f"{r.bandwidth_gb_s:7.2f} GB/s", 34)
            text = f"{runs}{r.memory_kb:8d} kB/run - {speed}"
        if not r.against_time_us:
            return text
        ratio = r.against_time_us / r.time_us
        beside = f"{r.against_time_us:8.2f} us/run there, ratio "
        return f"{text} - {beside}{self.paint(f'{ratio:5.2f}', 32 if ratio >= 1 else 31)}"

    def summary(self, totals: Totals) -> None:
        print(f"  {totals.coverage()}")
        print(f"  {totals.n_passed}/{len(totals.compared)} tests passed")
        for title, lines in (
            ("Known differences", totals.differences()),
            ("Failing tests", [str(case) for case in totals.failed]),
            ("To repeat them", totals.commands()),
        ):
            if lines:
                print(f"\n{title}:")
                print("\n".join(f"  {line}" for line in lines))

    def status(self, device: Device, ok: bool) -> None:
        print(f"  Backend {device.name}: {self.verdict(ok)}")

    def finish(self, n_ok: int, n_devices: int) -> None:
        print(f"{n_ok}/{n_devices} backends passed")
        print(self.verdict(n_ok == n_devices))


def _flops(n: float) -> str:
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if n >= size:
            return f"{n / size:6.2f} {unit}FLOP"
    return f"{n / 1e3:6.2f} kFLOP"


CSV_FIELDS = (
    "backend_name",
    "op_name",
    "op_params",
    "test_mode",
    "supported",
    "error_message",
    "backend_reg_name",
)


def _plain_row(r: Record) -> dict[str, Any]:
    """Return a row with booleans as 0 and 1; in support mode the message is yes or the reason."""
    row = asdict(r)
    row.update(supported=int(r.supported), passed=int(r.passed))
    if r.test_mode == "support" and r.supported:
        row["error_message"] = "yes"
    return row


class Csv(CaseReport):
    def start(self, n_devices: int) -> None:
        self.writer = csv.DictWriter(
            sys.stdout,
            CSV_FIELDS,
            extrasaction="ignore",
            quoting=csv.QUOTE_ALL,
            lineterminator="\n",
        )
        self.writer.writeheader()

    def record(self, r: Record) -> None:
        self.writer.writerow(_plain_row(r))


class Json(CaseReport):
    """One array, one object a line."""

    separator = "[\n"

    def record(self, r: Record) -> None:
        print(f"{self.separator}{json.dumps(asdict(r))}", end="", flush=True)
        self.separator = ",\n"

    def finish(self, n_ok: int, n_devices: int) -> None:
        print("[]" if self.separator == "[\n" else "\n]")


class Sql(CaseReport):
    def start(self, n_devices: int) -> None:
        kinds = {"str": "TEXT", "float": "REAL"}
        columns = [f"  {f.name} {kinds.get(str(f.type), 'INTEGER')}" for f in fields(Record)]
        print("CREATE TABLE IF NOT EXISTS test_backend_ops (")
        print(",\n".join(columns) + "\n);\n")

    def record(self, r: Record) -> None:
        row = _plain_row(r)
        values = ", ".join("'" + str(v).replace("'", "''") + "'" for v in row.values())
        print(f"INSERT INTO test_backend_ops ({', '.join(row)}) VALUES ({values});")


class OpsTable(CaseReport):
    """docs/ops.md: by backend, which cases of an op it takes."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], dict[str, bool]] = {}

    def record(self, r: Record) -> None:
        key = r.op_name, r.backend_reg_name
        self.answers.setdefault(key, {})[r.op_params] = r.supported

    def finish(self, n_ok: int, n_devices: int) -> None:
        print(table(self.answers), end="")


REPORTS: dict[str, type[CaseReport]] = {
    "console": Console,
    "csv": Csv,
    "json": Json,
    "sql": Sql,
    "markdown": OpsTable,
}
