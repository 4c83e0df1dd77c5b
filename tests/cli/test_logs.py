"""What commands tell: how much, where, and in which form."""

from __future__ import annotations

import errno
import io
import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from llama_py_tools.command import logs
from llama_py_tools.command.params import CommonParams
from llama_py_tools.generate import cli

QUICK = ["-dev", "ref", "-p", "A", "-n", "1", "--temp", "0"]
WARNED = ["-c", "1280"]  # more than the model was trained with


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main([*QUICK, *argv]) == 0
    return capsys.readouterr().err


def test_verbosity(capsys: pytest.CaptureFixture[str]) -> None:
    for level, says in ((1, []), (2, ["warning: "]), (3, ["warning: ", "load_tensors: "])):
        found = told(capsys, *WARNED, "-lv", str(level))
        assert "| generated 1 tokens" in found
        assert [mark for mark in ("warning: ", "load_tensors: ") if mark in found] == says
        assert "graph of " not in found
    assert "graph of " in told(capsys, "-lv", "4")
    assert "graph of " in told(capsys, "--log-verbose", "-lv", "0")


def test_nothing_but_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, *WARNED, "--log-disable") == ""
    assert cli.main(["-m", "missing.gguf", "--log-disable", "-lv", "0"]) == 1
    assert capsys.readouterr().err.startswith("error: missing.gguf")


def test_a_file_has_what_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "log"
    shown = told(capsys, *WARNED, "--log-file", str(file))
    assert file.read_text() == shown
    assert told(capsys, *WARNED, "--log-file", str(file), "--log-disable") == ""
    assert file.read_text().count("warning: -c") == 2
    assert cli.main([*QUICK, "--log-file", str(tmp_path)]) == 1
    says = f"error: {tmp_path}: Is a directory; use the path of a file\n"
    assert capsys.readouterr().err == says


def test_marks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = told(capsys, *WARNED, "--log-prefix", "--log-timestamps")
    assert re.search(r"^\d+\.\d\d\.\d{3} W warning: -c", shown, re.MULTILINE)
    assert re.search(r"^\d+\.\d\d\.\d{3} prompt 1 tokens|^prompt 1 tokens", shown, re.MULTILINE)
    assert "\033[35mwarning\033[0m: -c" in told(capsys, *WARNED, "--log-colors", "on")
    assert "\033" not in told(capsys, *WARNED)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\033[35mwarning" in told(capsys, *WARNED)
    assert "\033" not in told(capsys, *WARNED, "--log-colors", "off")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in told(capsys, *WARNED)


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*QUICK, *WARNED, "--log-jsonl"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = [json.loads(line) for line in shown.out.splitlines() if line.startswith("{")]
    assert [line["level"] for line in lines] == ["warn", "none"]
    assert lines[0]["msg"].startswith("-c 1280") and lines[0]["type"] == "log"


def test_a_new_start_closes_the_file(tmp_path: Path) -> None:
    logs.set_up(CommonParams(log_file=str(tmp_path / "log")))
    handler = logging.getLogger("llama_py").handlers[1]
    logs.set_up(CommonParams())
    assert handler not in logging.getLogger("llama_py").handlers
    logs.tell("elsewhere")
    assert (tmp_path / "log").read_text() == ""


@pytest.mark.parametrize("flags", [{}, {"log_prefix": True}, {"log_jsonl": True}])
def test_texts_of_clients_make_no_lines(
    flags: dict[str, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every control character is escaped at every level, in tracebacks too."""
    wild = "".join(map(chr, (*range(1, 32), *range(127, 160), 0x2028, 0x202E))) + "\nerror: forged"
    try:
        logs.set_up(CommonParams(verbose=True, **flags))
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            logs.log.log(level, "of %s", wild)
            logs.log.log(level, "of one", exc_info=ValueError(wild))
        assert logging.lastResort is not None  # which logs for other libraries
        logging.lastResort.handle(logging.makeLogRecord({"msg": wild, "levelno": logging.ERROR}))
    finally:
        logs.set_up(CommonParams())
    both = "".join(capsys.readouterr())
    assert both.count("forged") == 9 and "\nerror: forged" not in both
    assert {c for c in both if not c.isprintable()} <= {"\n", "\t"}


def test_a_dimmed_line_is_dim_and_its_text_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(CommonParams())
    logs.tell(f"{logs.DIM}(a\x1b[2Jb){logs.PLAIN}")
    assert capsys.readouterr().err == f"{logs.DIM}(a\\x1b[2Jb){logs.PLAIN}\n"


class FullDisk(io.StringIO):
    """A stream that cannot be written while it is full."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    made = FullDisk()
    monkeypatch.setattr(logs.log, "handlers", [])
    monkeypatch.setattr(logs, "sys", SimpleNamespace(stdout=made, stderr=made))
    logs.set_up(CommonParams(log_colors="off"))
    return made


def test_a_full_disk_ends_a_command_but_no_other_thread(disk: FullDisk) -> None:
    with pytest.raises(OSError, match="No space left"):
        logs.tell("one")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(logs.tell, "two").result()
        assert disk.getvalue() == ""


def test_a_server_outlives_a_full_disk(disk: FullDisk) -> None:
    logs.outlive_errors()
    for text in ("one", "two"):
        logs.tell(text)
    disk.full = False
    logs.tell("three")
    logs.tell("four")
    lost = "warning: 2 lines of the log may be missing: they could not be written"
    assert disk.getvalue().splitlines() == [lost, "three", "four"]
