"""Inspect, change, split, merge, convert, export and quantize model files.

Commands read only the metadata of a file, and the tensors that they copy.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from llama_py.params.option import Params, get_options, option
from llama_py.params.rules import integers
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.params import CommonParams
from llama_py_tools.gguf import convert, export, quantize_params
from llama_py_tools.gguf.convert import ConvertParams
from llama_py_tools.gguf.export import ExportParams
from llama_py_tools.gguf.quantize_params import QuantizeParams
from llama_py_tools.gguf.sizes import parse_size
from llama_py_tools.models import session


class ShowParams(Params):
    """Options of the command `show`."""

    file: str = option("", "file", "model file, or any shard of a model", metavar="FILE")
    keys: str = option("*", "-k --keys", "pattern of keys to print", metavar="PATTERN", env="")
    tensors: str = option(
        "*",
        "-t --tensors",
        "pattern of tensors to print ('': no tensors)",
        metavar="PATTERN",
        env="",
    )
    full: bool = option(False, "--full", "print long strings and arrays completely", env="")
    json: bool = option(False, "--json", "print JSON", env="")


class GetParams(Params):
    """Options of the command `get`."""

    file: str = option("", "file", "model file", metavar="FILE")
    key: str = option("", "key", "key of the value to print", metavar="KEY")
    json: bool = option(False, "--json", "print JSON", env="")


class SetParams(Params):
    """Options of the command `set`."""

    file: str = option("", "file", "model file", metavar="FILE")
    changes: tuple[str, ...] = option(
        (),
        "changes",
        "new values, in the key's type; arrays as JSON; a new key needs a KIND",
        nargs="*",
        metavar="KEY[:KIND]=VALUE",
    )
    remove: tuple[str, ...] = option(
        (),
        "--remove",
        "key to remove; may be repeated",
        parse=lambda t: (t,),
        many=True,
        metavar="KEY",
        env="",
    )
    output: str = option("", "-o --output", "new file", metavar="FILE", env="")
    in_place: bool = option(
        False, "--in-place", "replace the file when the new file is complete", env=""
    )
    force: bool = option(False, "--force", "overwrite an existing file", env="")


class SplitParams(Params):
    """Options of `split` (as in llama-gguf-split)."""

    file: str = option("", "file", "model file", metavar="FILE")
    prefix: str = option(
        "", "prefix", "prefix of the shards: PREFIX-00001-of-00003.gguf, ...", metavar="PREFIX"
    )
    max_tensors: int = option(
        128, "--split-max-tensors", "maximum tensors per shard", check=integers(1), env=""
    )
    max_size: int = option(
        0,
        "--split-max-size",
        "maximum bytes of tensors per shard (0: no limit); replaces --split-max-tensors",
        parse=parse_size,
        metavar="N[K|M|G]",
        check=integers(0),
        env="",
    )
    first_empty: bool = option(
        False, "--no-tensor-first-split", "write only metadata to the first shard", env=""
    )
    dry_run: bool = option(False, "--dry-run", "print the shards without writing them", env="")
    force: bool = option(False, "--force", "overwrite existing files", env="")


class MergeParams(Params):
    """Options of `merge` (as in llama-gguf-split)."""

    file: str = option("", "file", "any shard of the model", metavar="PART")
    output: str = option("", "output", "new file", metavar="FILE")
    force: bool = option(False, "--force", "overwrite an existing file", env="")


class FileDiffParams(Params):
    """Options of the command `diff`."""

    group = "diff"

    a: str = option("", "a", "first file", metavar="A")
    b: str = option("", "b", "second file", metavar="B")
    bytes: bool = option(
        True, "--bytes", "also compare the bytes of tensors", off="--no-bytes", env=""
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
    "show": (ShowParams, _show, "print metadata and tensors"),
    "get": (GetParams, _get, "print a value of the metadata"),
    "set": (SetParams, _set, "write a file with changed metadata"),
    "split": (SplitParams, _split, "split a file into shards"),
    "merge": (MergeParams, _merge, "merge shards into one file"),
    "convert": (ConvertParams, convert.run, "convert a Hugging Face checkpoint to GGUF"),
    "export": (ExportParams, export.run, "export a GGUF file to a Hugging Face folder"),
    "quantize": (QuantizeParams, quantize_params.run, "quantize the tensors of a file"),
    "diff": (
        FileDiffParams,
        _diff,
        "compare two files; exit code 0 if they are equal, 1 if they differ",
    ),
}


EPILOGS = {"convert": convert.EPILOG, "export": export.EPILOG, "quantize": quantize_params.EPILOG}


def parser() -> OptionParser:
    p = OptionParser("llama-py-gguf", description=__doc__)
    commands = p.add_subparsers(dest="command", required=True, metavar="|".join(COMMANDS))
    for name, (kind, _, help) in COMMANDS.items():
        words = [str(o.metavar) for _, o in get_options(kind) if o.flags[0][0] != "-"]
        command = commands.add_parser(
            name,
            common=(kind, "-v"),
            help=help,
            usage=f"%(prog)s [options] {' '.join(words)}",
            description=f"{help[0].upper()}{help[1:]}.",
            epilog=EPILOGS.get(name),
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
    if args.command == "convert":
        c = read(args, ConvertParams)
        if not c.folder and not c.listed:
            p.error("convert needs FOLDER or --list")
    if args.command == "export":
        e = read(args, ExportParams)
        if not e.folder and not e.listed:
            p.error("export needs IN and FOLDER, or --list")
    if args.command == "quantize":
        quantize_params.check(p, args)
    return session.run(COMMANDS[args.command][1], args)
