"""The standard streams on any system: encodings, pipes that nobody reads, colours."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

SYSTEM = sys.platform


def open_streams() -> None:
    """stderr that can be written to; stdin and stdout that take any bytes (surrogateescape), also
    where the system's own encoding lacks most characters."""
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  to the end
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")


def is_edited() -> bool:
    """Whether lines are typed at a terminal that shows what is told, too."""
    return all(s is not None and s.isatty() for s in (sys.stdin, sys.stdout))


def next_line(edited: bool, prompt: str = "") -> str | None:
    """Read a line of stdin without its newline; None at its end. `edited` lines come behind a
    prompt."""
    if edited:
        with suppress(ImportError):  # Windows does without
            import readline  # noqa: F401  line editing and history for input()
        try:
            return input(prompt)
        except EOFError:
            return None
    line = "" if sys.stdin is None else sys.stdin.readline()
    return line.removesuffix("\n") if line else None


def reader_left(e: BaseException) -> bool:
    """Whether stdout was a pipe that nobody reads any more; Windows has no error of its own for
    that."""
    windows = SYSTEM == "win32" and isinstance(e, OSError) and e.errno == errno.EINVAL
    return isinstance(e, BrokenPipeError) or windows


def drop_stdout() -> None:
    """What is still buffered goes nowhere, so that the interpreter's last flush cannot fail."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # stdout is closed, or no file
        return


def in_colour(stream: TextIO | None) -> bool:
    """Whether escape sequences become colours there. On Windows the console is told to obey them;
    one before Windows 10 refuses."""
    if stream is None or not stream.isatty():
        return False
    if "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return False
    return SYSTEM != "win32" or _obeys(_console())


def _console() -> Any:
    import ctypes

    windll: Any = getattr(ctypes, "windll")  # noqa: B009  (elsewhere there is none)
    return windll.kernel32


def _obeys(kernel32: Any) -> bool:
    import ctypes

    mode, stdout = ctypes.c_uint32(), ctypes.c_void_p(kernel32.GetStdHandle(-11))
    if not kernel32.GetConsoleMode(stdout, ctypes.byref(mode)):
        return False
    return bool(kernel32.SetConsoleMode(stdout, mode.value | 4))  # .._VIRTUAL_TERMINAL_PROCESSING
