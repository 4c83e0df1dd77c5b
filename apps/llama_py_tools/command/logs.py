"""Logging to stderr and a file: its level and format (llama.cpp's --log-*)."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TextIO

from llama_py.params.option import Params, option
from llama_py.params.rules import integers
from llama_py.params.texts import on_off_auto
from llama_py.support.progress import LINE
from llama_py_tools.command.streams import in_colour

log = logging.getLogger("llama_py")

NONE: Mapping[str, str] = MappingProxyType({})
TOLD = 100  # level of messages that a command always prints
DIM, PLAIN = "\x1b[2m", "\x1b[0m"
# The lowest level to show, by --log-verbosity; higher values show everything.
LEVELS = (logging.ERROR, logging.ERROR, logging.WARNING, logging.INFO)
_NAMES = {TOLD: "none", logging.WARNING: "warn"}  # level names in JSON
COLOURS = {logging.DEBUG: 33, logging.INFO: 32, logging.WARNING: 35, logging.ERROR: 31}


class CommonParams(Params):
    """Logging options of every command."""

    group = "logging"

    verbose: bool = option(
        False,
        "-v --verbose --log-verbose",
        "log everything, with the origin of errors",
        env="VERBOSE",
    )
    log_verbosity: int = option(
        2,
        "-lv --verbosity --log-verbosity",
        "log level: errors only (0, 1), also warnings (2), also progress (3), everything (4 or"
        " more)",
        check=integers(0),
    )
    log_file: str = option("", "--log-file", "file for a copy of the log", metavar="FILE")
    log_disable: bool = option(
        False, "--log-disable", "print only the error that ends the command on stderr", env=""
    )
    log_colors: str = option(
        "auto",
        "--log-colors",
        "color the marks of warnings and errors (auto: on a terminal)",
        choices=("on", "off", "auto"),
        parse=on_off_auto,
    )
    log_prefix: bool = option(
        False,
        "--log-prefix",
        "start each log line with the letter of the level",
        off="--no-log-prefix",
    )
    log_timestamps: bool = option(
        False,
        "--log-timestamps",
        "start each log line with the time since the start",
        off="--no-log-timestamps",
    )
    log_jsonl: bool = option(
        False, "--log-jsonl", "log JSON objects to stdout, one per line", off="--no-log-jsonl"
    )

    @property
    def level(self) -> int:
        if self.verbose or self.log_verbosity >= len(LEVELS):
            return logging.DEBUG
        return LEVELS[self.log_verbosity]


def set_up(params: CommonParams, flags: Mapping[str, str] = NONE) -> None:
    """Configure logging; OSError if the file cannot be written.

    flags  the flag of each option by its name in Python: messages are written for both
    """
    for handler in log.handlers[:]:
        log.removeHandler(handler)
        handler.close()
    form = _JSON(flags) if params.log_jsonl else _Form(flags, params)
    log.setLevel(params.level)
    if logging.lastResort is not None:  # handler for libraries that log
        logging.lastResort.setFormatter(form)
    log.addHandler(_LogStream(lambda: sys.stdout if params.log_jsonl else sys.stderr, form))
    if params.log_disable:
        log.handlers[0].addFilter(lambda record: record.levelno == logging.ERROR)
    if params.log_file:
        path = Path(params.log_file)
        file = path.open("a", encoding="utf-8", errors="backslashreplace")
        log.addHandler(_LogStream(lambda: file, form, file.close))


def outlive_errors() -> None:
    """Let a server continue if its log cannot be written."""
    for handler in log.handlers:
        if isinstance(handler, _LogStream):
            handler.is_needed = False


def tell(text: str) -> None:
    """Print a line for the user on stderr."""
    log.log(TOLD, "%s", text)


class _LogStream(logging.Handler):
    """Log handler that writes to the stream that a function returns.

    An error of the stream (a full disk, a closed pipe) is raised in the main thread, as by `print`.
    It ends no other thread, and no server: lines are lost, and counted in a later line.
    """

    def __init__(
        self,
        stream: Callable[[], TextIO],
        form: logging.Formatter,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.stream, self.at_end = stream, at_end
        self.is_needed, self._n_lost = True, 0
        self.setFormatter(form)

    def emit(self, record: logging.LogRecord) -> None:
        LINE.wipe()  # progress line
        lines = [self.format(record)]
        if self._n_lost:
            text = f"{self._n_lost} lines of the log may be missing: they could not be written"
            told = {"name": log.name, "levelno": logging.WARNING, "levelname": "WARNING"}
            lines.insert(0, self.format(logging.makeLogRecord({**told, "msg": text})))
        try:
            print(*lines, sep="\n", file=self.stream(), flush=True)
            self._n_lost = 0
        except OSError:
            if self.is_needed and threading.current_thread() is threading.main_thread():
                raise
            self._n_lost += 1

    def close(self) -> None:
        self.at_end()
        super().close()


# Characters that could move a terminal's cursor, end a line or change its direction.
_CONTROL = {
    c: repr(chr(c))[1:-1]
    for c in (
        *range(32),
        *range(127, 160),
        0x2028,
        0x2029,
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    )
    if chr(c) not in "\n\t"
}


class _FlagFormatter(logging.Formatter):
    """Formatter that writes `-c` if a message has the option's Python name."""

    def __init__(self, flags: Mapping[str, str]) -> None:
        super().__init__()
        self.flags = flags

    def text(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        dim = record.levelno == TOLD and text.startswith(DIM) and text.endswith(PLAIN)
        text = text[len(DIM) : -len(PLAIN)] if dim else text
        text = text.translate(_CONTROL)
        if dim:
            return f"{DIM}{text}{PLAIN}"
        if record.levelno != TOLD:
            text = text.replace("\n", "\n  ")  # a separate line would look like a record
        problem = logging.WARNING <= record.levelno < TOLD  # TOLD messages may be user text
        wanted = problem and getattr(record, "in_flags", True)
        return in_flags(text, self.flags) if wanted else text


def in_flags(text: str, flags: Mapping[str, str]) -> str:
    """Replace names by flags in a message: `n_ctx = 5` becomes `-c 5`."""

    def flag(found: re.Match[str]) -> str:
        name, value, same = found.groups()
        if name not in flags or (same and same != flags[name]):
            return found[0]
        return f"{flags[name]} " if value else flags[name]

    return _NAME.sub(flag, text)


# With a `_`, to exclude ordinary words; paths and keys of a file are excluded also.
_NAME = re.compile(
    r"(?<![\w./'-])([a-z]+(?:_[a-z]+)+)\b(?!\.\w|[/'(])( = |=(?=\w))?(?: \((-[\w-]+)\))?"
)


class _Form(_FlagFormatter):
    """`warning: text`, perhaps with `W` and the time before it."""

    def __init__(self, flags: Mapping[str, str], params: CommonParams) -> None:
        super().__init__(flags)
        self.params = params

    def format(self, record: logging.LogRecord) -> str:
        text = self.text(record)
        if record.levelno in (logging.WARNING, logging.ERROR) and record.msg:
            text = f"{self.mark(record, record.levelname.lower())}: {text}"
        before = []
        if self.params.log_timestamps:
            s = record.relativeCreated / 1000
            before.append(f"{s // 60:.0f}.{s % 60:06.3f}")
        if self.params.log_prefix and record.levelno != TOLD:
            before.append(self.mark(record, record.levelname[0]))
        return " ".join([*before, text])

    def mark(self, record: logging.LogRecord, text: str) -> str:
        colours = self.params.log_colors
        if colours == "off" or (colours == "auto" and not in_colour(sys.stderr)):
            return text
        return f"\033[{COLOURS[record.levelno]}m{text}\033[0m"


class _JSON(_FlagFormatter):
    """A formatter for lines of JSON, with the time in microseconds since the start, like
    llama.cpp."""

    def format(self, record: logging.LogRecord) -> str:
        level = _NAMES.get(record.levelno) or record.levelname.lower()
        return json.dumps(
            {
                "type": "log",
                "time": int(record.relativeCreated * 1000),
                "level": level,
                "msg": self.text(record),
            }
        )
