"""Where the console script begins: nothing is imported here, so that Ctrl-C ends it quietly from
its first moment on."""

from __future__ import annotations

INTERRUPTED = 130


def server() -> int:
    try:
        from llama_py_tools.start import run_module
    except KeyboardInterrupt:
        return INTERRUPTED
    return run_module("llama_py_server.command", serves=True)
