"""Version text of `--version`: this project, and the libraries of its kernels."""

from __future__ import annotations

import argparse
from typing import Any

from ggml_py.machine.release import VERSION

NAME = "llama-py"
PARTS = ("numba", "llvmlite", "numpy", "tokenizers")


def text() -> str:
    """Return `llama-py 0.1.0`, and a line about the environment."""
    import platform
    from importlib.metadata import version

    parts = ", ".join(f"{name} {version(name)}" for name in PARTS)
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    return f"{NAME} {VERSION}\n{parts}; {system}"


class Version(argparse.Action):
    """Prints `text()` and ends the command."""

    def __init__(self, option_strings: list[str], dest: str, help: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(text())
        parser.exit()
