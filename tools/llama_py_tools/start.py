"""Where console scripts begin: nothing is imported here, so that Ctrl-C ends a command quietly from
its first moment on, while its modules are being loaded too."""

from __future__ import annotations

INTERRUPTED = 130


def _run(command: str) -> int:
    try:
        import sys
        from importlib import import_module

        from llama_py_tools.ranks import joined

        words = ["graph", *sys.argv[1:]] if command == "graph" else sys.argv[1:]
        serves = command == "main" and words[:1] == ["serve"]
        plans = words[:1] == ["graph"] and words[1:2] != ["profile"] and "--profile" not in words
        if (code := joined(serves, plans)) is not None:
            return code
        return int(import_module(f"llama_py_tools.{command}").main() or 0)
    except KeyboardInterrupt:
        return INTERRUPTED


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
