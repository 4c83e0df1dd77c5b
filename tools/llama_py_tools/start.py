"""Where console scripts begin: nothing is imported here, so that Ctrl-C ends a command quietly from
its first moment on, while its modules are being loaded too."""

from __future__ import annotations

FAILED, INTERRUPTED = 1, 130


def _run(command: str) -> int:
    try:
        return _written(command)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as e:  # of what is printed before a command begins: help, completion
        from llama_py_tools.streams import drop_stdout, reader_left

        drop_stdout()
        if not reader_left(e):
            import sys

            print(f"error: {e.strerror or e}", file=sys.stderr)
        return FAILED


def _written(command: str) -> int:
    """What the command gives, when all that it printed is written."""
    import sys

    try:
        return _joined(command)
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()


def _joined(command: str) -> int:
    import sys
    from importlib import import_module

    from llama_py_tools.ranks import joined

    words = ["graph", *sys.argv[1:]] if command == "graph" else sys.argv[1:]
    serves = command == "main" and words[:1] == ["serve"]
    plans = words[:1] == ["graph"] and words[1:2] != ["profile"] and "--profile" not in words
    if (code := joined(serves, plans)) is not None:
        return code
    return int(import_module(f"llama_py_tools.{command}").main() or 0)


def main() -> int:
    return _run("main")


def cli() -> int:
    return _run("cli")


def debug() -> int:
    return _run("debug")


def gguf() -> int:
    return _run("gguf")


def graph() -> int:
    return _run("graph")


def bench() -> int:
    return _run("bench")


def imatrix() -> int:
    return _run("imatrix")


def embedding() -> int:
    return _run("embedding")


def perplexity() -> int:
    return _run("perplexity")


def cvector_generator() -> int:
    return _run("cvector_generator")


def test_backend_ops() -> int:
    return _run("test_backend_ops")
