"""Programs for work on untrusted data: they run in another process, which can be ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, TypeVar

from llama_py.support.stopping import check_stopped

T = TypeVar("T")
NICE = 10  # priority of the process, below the caller's
POLL = 0.05  # seconds between two checks whether the work is still needed


def run(
    arguments: Sequence[str], data: bytes, read: Callable[[IO[bytes]], T], seconds: float
) -> T | None:
    """Run Python with `data` as standard input and return the result of `read`.

    The program gets this process's `sys.path` after the arguments, so that it can import the same
    modules. It ends after `seconds`, and when the caller's check (`stopping.use_stop_check`)
    raises.

    Args:
        arguments: Arguments of the interpreter, such as a file's path.
        data: Standard input.
        read: Reads the whole standard output, in another thread.
        seconds: Time limit.

    Returns:
        The result of `read`; None if the program fails or `read` raises.

    Raises:
        TimeoutError: The program takes too long.
    """
    command = [sys.executable, "-I", *arguments, *sys.path]
    pipe, found = subprocess.PIPE, list[T]()
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        given, output = process.stdin, process.stdout
        assert given is not None and output is not None
        with suppress(AttributeError, OSError):  # systems without priorities, or a finished process
            os.setpriority(os.PRIO_PROCESS, process.pid, NICE)

        def send() -> None:
            with suppress(OSError), given:  # the program may end before it has read all
                given.write(data)

        def receive() -> None:
            with suppress(Exception):
                found.append(read(output))

        threads = [threading.Thread(target=call, daemon=True) for call in (send, receive)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + seconds
        try:
            while threads[1].is_alive():
                threads[1].join(POLL)
                check_stopped()
                if time.monotonic() > until:
                    raise TimeoutError(f"more than {seconds} s")
        finally:
            if threads[1].is_alive():
                process.kill()
            for thread in threads:
                thread.join()
        return found[0] if process.wait() == 0 and found else None
