#!/usr/bin/env python3
"""Record or compare results of a published llama.cpp, build b11739.

    python -m dev.record.newest record ARCH ...  # models with `newest=True`, as record_golden
    python -m dev.record.newest types ARCH ...  # types of quantized tensors: tests/data/quantize
    python -m dev.record.newest check ARCH ...  # compare recorded results with this build
    python -m dev.record.newest judge ARCH ...  # rows of docs/judged.md; needs an OpenCL device
    python -m dev.record.newest compare FILE ...  # compare llama-py with it: nodes and values
    python -m dev.record.newest batches ARCH ...  # compare batches of tokens and embeddings
    python -m dev.record.newest keys ARCH [KEY=VALUE ...]  # keys and tensors that it loads
    python -m dev.record.newest names keys  # llama_py/hparams/known_keys.py
    python -m dev.record.newest names ARCH ...  # keys it reads: tests/data/keys_read.json.xz
    python -m dev.record.newest vocab NAME ...  # ids of texts: tests/support/vocabularies.py
    python -m dev.record.newest graph ARCH [KEY=VALUE ...]  # nodes of the smallest file

Installation of the wheel in a folder:

    pip install -t $DIR llama-cpp-py-sync==0.11739 cffi

If `ldd --version` prints a glibc before 2.38, unpack the one of Debian trixie into the same folder.
The system does not change: the program starts Python again with the folder's ld.so.

    mkdir -p $DIR/apt/lists/partial && cd $DIR/apt
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \\
        http://deb.debian.org/debian trixie main" > sources.list
    OPTIONS="-o Dir::Etc::sourcelist=$PWD/sources.list -o Dir::Etc::sourceparts=- \\
        -o Dir::State::lists=$PWD/lists -o Dir::Cache=$PWD"
    apt-get $OPTIONS update && apt-get $OPTIONS download libc6 libstdc++6 libgcc-s1
    for deb in *.deb; do dpkg-deb -x $deb $DIR/libc; done

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
    "names",
)


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--dir", type=Path, default=os.environ.get("LLAMA_CPP_NEWEST"))
    p.add_argument("command", choices=COMMANDS)
    p.add_argument("names", nargs="+", metavar="NAME", help="ARCH, FILE or KEY=VALUE")
    args = p.parse_args()
    if args.dir is None:
        p.error("--dir or LLAMA_CPP_NEWEST must name the folder of the wheel")
    with_its_libc(args.dir.resolve())
    from dev.record.newest import binding

    sys.path.append(str(args.dir))
    binding.install()
    from dev.record.newest import commands

    with tempfile.TemporaryDirectory() as folder:
        if args.command in ("keys", "graph"):
            given = (name.split("=", 1) for name in args.names[1:])
            values = {key: json.loads(value) for key, value in given}
            getattr(commands, args.command)(args.names[0], values, Path(folder))
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
