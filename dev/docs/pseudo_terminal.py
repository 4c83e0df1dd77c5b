"""Run a command in a pseudo-terminal and read its screen as text (pyte).

with PseudoTerminal(["llama-py-cli", "-s", "1"]) as terminal:
    terminal.until("> ")
    terminal.send("Hello\\r")
    print(terminal.text())
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

import pyte

DIM, GREY = b"\x1b[2m", b"\x1b[90m"  # pyte does not support dim text
CTRL_C, CTRL_D = "\x03", "\x04"


class PseudoTerminal:
    """Running command and its screen; SIGINT, history and colors work like in a real terminal."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        columns: int = 100,
        lines: int = 30,
        shown: str = "",
    ) -> None:
        """Start a command; `shown` is earlier text on the screen."""
        self.screen: Any = pyte.Screen(columns, lines)
        self.screen.write_process_input = self.send
        self._stream: Any = pyte.ByteStream(self.screen)
        self._stream.feed(shown.replace("\n", "\r\n").encode())
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,
            env={**os.environ, "TERM": "xterm-256color", **(env or {})},
        )
        os.close(theirs)

    def send(self, text: str | bytes) -> None:
        """Type the text into the terminal."""
        os.write(self._fd, text.encode() if isinstance(text, str) else text)

    def text(self) -> str:
        """Return the text of the screen, without spaces at the ends of lines."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip("\n")

    def until(self, wanted: str | Callable[[str], bool], seconds: float = 900.0) -> str:
        """Wait for a string or a condition on the screen; raise TimeoutError with the screen."""
        holds = wanted if callable(wanted) else lambda text: wanted in text
        end = monotonic() + seconds
        while not holds(self.text()):
            if not self._feed(end - monotonic()):
                raise TimeoutError(f"{wanted!r} did not appear; the screen is\n{self.text()}")
        return self.text()

    def wait(self, seconds: float = 900.0) -> int:
        """Wait for the command's exit code; raise TimeoutError with the screen."""
        end = monotonic() + seconds
        while self._feed(end - monotonic()):
            """Read until the output ends."""
        try:
            return self.process.wait(max(end - monotonic(), 1))
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the command did not exit; the screen is\n{self.text()}") from None

    def _feed(self, seconds: float) -> bool:
        """Show the next output; return False after `seconds` without output, or at its end."""
        ready, _, _ = select.select([self._fd], [], [], max(seconds, 0))
        if not ready:
            return False
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # the command closed its side
            return False
        self._stream.feed(data.replace(DIM, GREY))
        return bool(data)

    def __enter__(self) -> PseudoTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._fd)


def _take_terminal() -> None:
    """Make stdin the child's terminal, with the default action for Ctrl-C."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
