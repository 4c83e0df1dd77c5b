"""Command line of llama-py-gguf. Of model files only heads are read, but for what is copied."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llama_py.params.option import Params, option
from llama_py.params.rules import integers
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.params import CommonParams
from llama_py_tools.gguf import quantize_params
from llama_py_tools.gguf.quantize_params import QuantizeParams
from llama_py_tools.gguf.sizes import size_of
from llama_py_tools.models import session


@dataclass(frozen=True, kw_only=True)
class ShowParams(Params):
    """Options of the command `show`."""

    file: str = option("", "file", "the file, or any part of a split one", metavar="FILE")
    keys: str = option("*", "-k --keys", "only keys that fit", metavar="PATTERN", env="")
    tensors: str = option(
        "*", "-t --tensors", "only tensors that fit; '' none", metavar="PATTERN", env=""
    )
    full: bool = option(False, "--full", "all of long texts and arrays", env="")
    json: bool = option(False, "--json", "as JSON", env="")


@dataclass(frozen=True, kw_only=True)
class GetParams(Params):
    """Options of the command `get`."""

    file: str = option("", "file", "the file", metavar="FILE")
    key: str = option("", "key", "the key whose value is written", metavar="KEY")
    json: bool = option(False, "--json", "as JSON", env="")


@dataclass(frozen=True, kw_only=True)
class SetParams(Params):
    """Options of the command `set`."""

    file: str = option("", "file", "the file", metavar="FILE")
    changes: tuple[str, ...] = option(
        (),
        "changes",
        "a value as the key's kind has it; arrays as JSON. A new key needs a kind",
        nargs="*",
        metavar="KEY[:KIND]=VALUE",
    )
    remove: tuple[str, ...] = option(
        (),
        "--remove",
        "a key to leave out; may be given again",
        parse=lambda t: (t,),
        many=True,
        metavar="KEY",
        env="",
    )
    output: str = option("", "-o --output", "the new file", metavar="FILE", env="")
    in_place: bool = option(
        False, "--in-place", "put the new file in the old one's place, once it is whole", env=""
    )
    force: bool = option(False, "--force", "write over a file that is there", env="")


@dataclass(frozen=True, kw_only=True)
class SplitParams(Params):
    """Options of `split` (as in llama-gguf-split)."""

    file: str = option("", "file", "the file", metavar="FILE")
    prefix: str = option(
        "", "prefix", "parts are PREFIX-00001-of-00003.gguf, ...", metavar="PREFIX"
    )
    max_tensors: int = option(
        128, "--split-max-tensors", "tensors of a part", check=integers(1), env=""
    )
    max_size: int = option(
        0,
        "--split-max-size",
        "bytes of a part's tensors, instead",
        parse=size_of,
        metavar="N[K|M|G]",
        check=integers(0),
        env="",
    )
    first_empty: bool = option(
        False, "--no-tensor-first-split", "the first part has metadata only", env=""
    )
    dry_run: bool = option(False, "--dry-run", "only say what there would be", env="")
    force: bool = option(False, "--force", "write over files that are there", env="")


@dataclass(frozen=True, kw_only=True)
class MergeParams(Params):
    """One file of its parts."""

    file: str = option("", "file", "any of the parts", metavar="PART")
    output: str = option("", "output", "the new file", metavar="FILE")
    force: bool = option(False, "--force", "write over a file that is there", env="")


@dataclass(frozen=True, kw_only=True)
class FileDiffParams(Params):
    """Options of the command `diff`."""

    a: str = option("", "a", "a file", metavar="A")
    b: str = option("", "b", "another one", metavar="B")
    bytes: bool = option(
        True, "--bytes", "compare the tensors' bytes, too", off="--no-bytes", env=""
    )


def _show(args: argparse.Namespace) -> None:
    from llama_py_tools.gguf.show import show

    o = read(args, ShowParams)
    show(o.file, o.keys, o.tensors, o.full, o.json)


def _get(args: argparse.Namespace) -> None:
    from llama_py_tools.gguf.show import get

    o = read(args, GetParams)
    get(o.file, o.key, o.json)


def _set(args: argparse.Namespace) -> None:
    from llama_py_tools.gguf.edit import change

    o = read(args, SetParams)
    change(o.file, o.changes, o.remove, o.file if o.in_place else o.output, o.force or o.in_place)


def _split(args: argparse.Namespace) -> None:
    from llama_py_tools.gguf.parts import split

    o = read(args, SplitParams)
    split(o.file, o.prefix, o.max_tensors, o.max_size, o.first_empty, o.dry_run, o.force)


def _merge(args: argparse.Namespace) -> None:
    from llama_py_tools.gguf.parts import merge

    o = read(args, MergeParams)
    merge(o.file, o.output, o.force)


def _diff(args: argparse.Namespace) -> int:
    from llama_py_tools.gguf.compare import compare

    o = read(args, FileDiffParams)
    return compare(o.a, o.b, o.bytes)


COMMANDS: dict[str, tuple[type[Params], Callable[[argparse.Namespace], int | None], str]] = {
    "show": (ShowParams, _show, "metadata and tensors"),
    "get": (GetParams, _get, "one value"),
    "set": (SetParams, _set, "a file with other metadata"),
    "split": (SplitParams, _split, "a file in parts"),
    "merge": (MergeParams, _merge, "parts in one file"),
    "quantize": (QuantizeParams, quantize_params.run, "a file with other types"),
    "diff": (FileDiffParams, _diff, "what differs between two files: exit 0 nothing, 1 something"),
}


def parser() -> OptionParser:
    p = OptionParser("llama-py-gguf", description=__doc__)
    commands = p.add_subparsers(dest="command", required=True, metavar="|".join(COMMANDS))
    for name, (kind, _, help) in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=help,
            description=f"{help[0].upper()}{help[1:]}.",
            epilog=quantize_params.EPILOG if name == "quantize" else None,
        )
        command.add(kind, CommonParams)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command: 0 done or equal, 1 different or error, 2 wrong usage."""
    p = parser()
    args = p.parse_args(argv)
    if args.command == "set":
        o = read(args, SetParams)
        if bool(o.output) == o.in_place:
            p.error("set needs -o FILE or --in-place")
        if not o.changes and not o.remove:
            p.error("set needs KEY=VALUE or --remove KEY")
    if args.command == "quantize":
        quantize_params.check(p, args)
    return session.run(COMMANDS[args.command][1], args)
