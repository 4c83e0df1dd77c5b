"""Where the console script begins: nothing is imported here, so that Ctrl-C ends it quietly from
its first moment on."""

from __future__ import annotations


def server() -> int:
    from llama_py_tools.start import run_module

    return run_module("llama_py_server.command", serves=True)
