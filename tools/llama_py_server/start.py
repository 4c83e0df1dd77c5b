"""Where the console script begins: nothing is imported here, so that Ctrl-C ends it quietly from
its first moment on."""

from __future__ import annotations

INTERRUPTED = 130


def server() -> int:
    try:
        from llama_py_tools.ranks import joined

        if (code := joined(serves=True)) is not None:
            return code
        from llama_py_server.command import main

        return main()
    except KeyboardInterrupt:
        return INTERRUPTED
