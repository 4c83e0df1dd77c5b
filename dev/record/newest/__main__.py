#!/usr/bin/env python3
"""Record or compare results of a published llama.cpp, build b11739.

    python -m dev.record.newest record ARCH ...  # models with `newest=True`, as record_golden
    python -m dev.record.newest types ARCH ...  # types of quantized tensors: tests/data/quantize
    python -m dev.record.newest check ARCH ...  # compare recorded results with this build
    python -m dev.record.newest judge ARCH ...  # rows of docs/judged.md; needs an OpenCL device
    python -m dev.record.newest compare FILE ...  # compare llama-py with it: nodes and values
    python -m dev.record.newest fixture FILE ...  # nodes of a file of test-llama-archs
    python -m dev.record.newest batches ARCH ...  # compare batches of tokens and embeddings
    python -m dev.record.newest keys ARCH [KEY=VALUE ...]  # keys and tensors that it loads
    python -m dev.record.newest names keys  # llama_py/hparams/known_keys.py
    python -m dev.record.newest names ARCH ...  # keys it reads: tests/data/keys_read.json.xz
    python -m dev.record.newest vocab NAME ...  # ids of texts: tests/support/vocabularies.py
    python -m dev.record.newest graph ARCH [KEY=VALUE ...]  # inputs and nodes

`README.md` next to this file has the installation of the wheel. If the folder has a libc, the
program starts Python again with the libc's ld.so.

`--dir` or the environment variable LLAMA_CPP_NEWEST names the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from dev.record.newest.binding import python_command

COMMANDS = (
    "record",
    "types",
    "check",
    "judge",
    "compare",
    "vocab",
    "keys",
    "graph",
    "batches",
    "fixture",
    "names",
)


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--dir", type=Path, default=os.environ.get("LLAMA_CPP_NEWEST"))
    p.add_argument("command", choices=COMMANDS)
    p.add_argument("names", nargs="+", metavar="NAME", help="ARCH, FILE or KEY=VALUE")
    p.add_argument("--marks", default="", help="of `graph`: a digit per token (Batch.marks)")
    args = p.parse_args()
    if args.dir is None:
        p.error("--dir or LLAMA_CPP_NEWEST must name the folder of the wheel")
    if args.marks and (args.command != "graph" or set(args.marks) - {*"01234"}):
        p.error(f"--marks needs `graph` and digits from 0 to 4, got {args.marks!r}")
    # With gdb, a failed assertion would print a long backtrace of Python.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    with_its_libc(args.dir.resolve())
    from dev.record.newest import binding

    sys.path.append(str(args.dir))
    binding.install()
    from dev.record.newest import commands

    with tempfile.TemporaryDirectory() as folder:
        if args.command in ("keys", "graph"):
            given = (name.split("=", 1) for name in args.names[1:])
            values = {key: json.loads(value) for key, value in given}
            marks = {"marks": args.marks} if args.command == "graph" else {}
            getattr(commands, args.command)(args.names[0], values, Path(folder), **marks)
            return
        for name in args.names:
            getattr(commands, args.command)(name, Path(folder))


def with_its_libc(folder: Path) -> None:
    """Start this program again if the folder has a libc."""
    command = python_command(folder)
    if len(command) > 1 and "LLAMA_CPP_LIBC" not in os.environ:
        os.environ["LLAMA_CPP_LIBC"] = command[0]
        os.execv(command[0], [*command, "-m", "dev.record.newest", *sys.argv[1:]])


if __name__ == "__main__":
    main()
