"""Standard streams on any system: encodings, closed pipes, colors."""

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
    """Make stderr writable, and stdin and stdout accept any bytes (surrogateescape), for every
    system encoding."""
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  to the end
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")


def is_edited() -> bool:
    """Return True if lines are typed at a terminal that also shows the output."""
    return all(s is not None and s.isatty() for s in (sys.stdin, sys.stdout))


def next_line(edited: bool, prompt: str = "") -> str | None:
    """Read a line of stdin without its newline; None at its end. `edited` lines have a
    prompt."""
    if edited:
        with suppress(ImportError):  # readline is missing on Windows
            import readline  # noqa: F401  line editing and history for input()
        try:
            return input(prompt)
        except EOFError:
            return None
    line = "" if sys.stdin is None else sys.stdin.readline()
    return line.removesuffix("\n") if line else None


def reader_left(e: BaseException) -> bool:
    """Return True if stdout's reader has closed the pipe; Windows has no specific error."""
    windows = SYSTEM == "win32" and isinstance(e, OSError) and e.errno == errno.EINVAL
    return isinstance(e, BrokenPipeError) or windows


def drop_stdout() -> None:
    """Discard buffered output, so that the interpreter's last flush cannot fail."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # stdout is closed, or is not a file
        return


def in_colour(stream: TextIO | None) -> bool:
    """Return True if a stream shows colors. On Windows they are enabled first; systems before
    Windows 10 refuse."""
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
