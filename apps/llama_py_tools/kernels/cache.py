"""Command llama-py-cli cache: compiled kernels, and weights received from other machines."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from llama_py.params.option import Params, option
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.params import CommonParams
from llama_py_tools.models import session

ACTIONS = ("list", "path", "clear")


class CacheParams(Params):
    """Options for showing or clearing the cache."""

    action: str = option(
        "list",
        "action",
        "list: environments (versions and CPU) with their kernels; path: folder of the current"
        " environment; clear: remove kernels of the current environment",
        choices=ACTIONS,
        nargs="?",
    )
    unused: bool = option(
        False, "--unused", "clear all environments except the current environment", env=""
    )
    weights: bool = option(
        False, "--weights", "clear the weights that rank 0 has sent to this machine", env=""
    )
    all: bool = option(False, "--all", "clear all kernels and weights", env="")


def parser() -> OptionParser:
    p = OptionParser(
        "llama-py-cli cache",
        (CacheParams, "-v"),
        usage="%(prog)s [list|path|clear [--unused|--weights|--all]]",
        description="List or remove compiled kernels, and weights received from other machines.",
    )
    p.add(CacheParams, CommonParams)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (docs/commands.md)."""
    p = parser()
    args = p.parse_args(argv)
    o = read(args, CacheParams)
    if (o.unused or o.weights or o.all) and o.action != "clear":
        p.error("--unused, --weights and --all need the command clear")
    return session.run(_command, args)


def _command(args: argparse.Namespace) -> None:
    o = read(args, CacheParams)
    at = _present()
    if o.action == "path":
        print(at)
    elif o.action == "list":
        _list(at)
    else:
        _clear(o)


def _present() -> Path:
    """Return the present environment's directory."""
    from ggml_cpu import store
    from ggml_py.errors import BackendError

    at = store.path()
    if at is None:
        raise BackendError("no home directory; set LLAMA_PY_CACHE to a directory")
    return at


def _list(at: Path) -> None:
    from ggml_cpu.tidy import environments
    from ggml_mpi import kept

    found = environments()
    print(f"{at.parent}: {_size(sum(e.size for e in found))} in {len(found)} environments")
    for e in found:
        used = _date(e.used)
        what = f"{e.n_kernels:5} kernels {_size(e.size):>10}   used {used}   {e.made_for}"
        print(f"{'*' if e.present else ' '} {e.path.name} {what}")

    if (sent := kept.about()) is not None:
        print(
            f"{sent.path}: {_size(sent.size)} in {sent.n} parts of models that rank 0 has sent"
            f"   used {_date(sent.used)}"
        )


def _clear(o: CacheParams) -> None:
    from ggml_cpu.tidy import environments, remove
    from ggml_mpi import kept

    if o.weights or o.all:
        n_parts, n_bytes = kept.clear()
        if o.weights or n_parts:
            print(f"removed {n_parts} parts of models, {_size(n_bytes)}")
    if o.weights and not (o.unused or o.all):
        return

    wanted = [e for e in environments() if o.all or e.present != o.unused]
    removed = remove(wanted)
    n, size = sum(e.n_kernels for e in removed), _size(sum(e.size for e in removed))
    print(f"removed {n} kernels, {size}, of {len(removed)} environments")
    for e in wanted:
        if e not in removed:
            session.log.warning(
                "%s is not removed: it is in use, or it has files of other users", e.path
            )


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def _size(n: int) -> str:
    return f"{n / 2**20:.1f} MiB"
