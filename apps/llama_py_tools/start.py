"""Where console scripts begin: nothing is imported here, so that Ctrl-C ends a command quietly from
its first moment on, while its modules are being loaded too."""

from __future__ import annotations


def run_module(module: str, serves: bool = False, plans: bool = False) -> int:
    """Run the `main` of a command's module as a process: the exit code.

    Args:
        module: Where `main` is; it is imported here.
        serves: The command is a server (see `llama_py_tools.ranks.joined`).
        plans: The command computes nothing.
    """
    try:
        return _written(module, serves, plans)
    except KeyboardInterrupt:
        return 130
    except OSError as e:  # of what is printed before a command begins: help, completion
        from llama_py_tools.streams import drop_stdout, reader_left

        drop_stdout()
        if not reader_left(e):
            import sys

            print(f"error: {e.strerror or e}", file=sys.stderr)
        return 1


def _written(module: str, serves: bool, plans: bool) -> int:
    """Return the command's exit code when all that it printed is written."""
    import sys
    from importlib import import_module

    from llama_py_tools.ranks import joined

    try:
        if (code := joined(serves, plans)) is not None:
            return code
        return int(import_module(module).main() or 0)
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()


def _run(command: str) -> int:
    import sys

    words = ["graph", *sys.argv[1:]] if command == "graph" else sys.argv[1:]
    serves = command == "main" and words[:1] == ["serve"]
    plans = words[:1] == ["graph"] and words[1:2] != ["profile"] and "--profile" not in words
    return run_module(f"llama_py_tools.{command}", serves, plans)


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
