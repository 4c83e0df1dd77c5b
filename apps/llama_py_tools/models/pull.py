"""Command llama-py pull: downloads models of the Hub to its cache, for -hf and short names."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from llama_py.params.option import Params, option
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.params import CommonParams, FileParams
from llama_py_tools.models import session


class PullParams(Params):
    """Options of the models to download."""

    models: tuple[str, ...] = option(
        (),
        "models",
        "models of the Hugging Face Hub; without a type: Q4_K_M, Q8_0 or the first file",
        nargs="+",
        metavar="USER/MODEL[:TYPE]",
    )


FETCHING = ("hf_file", "hf_token", "offline")


def parser() -> OptionParser:
    p = OptionParser(
        "llama-py pull",
        (PullParams, "-hff -hft --offline -v"),
        usage="%(prog)s USER/MODEL[:TYPE] ... [-hff NAME] [-hft TOKEN]",
        description="Download models of the Hugging Face Hub and print their paths.",
    )
    without = {f for f in FileParams.__dataclass_fields__ if f not in FETCHING}
    p.add(PullParams, CommonParams)
    p.add(FileParams, without=without)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (docs/commands.md)."""
    return session.run(_command, parser().parse_args(argv))


def _command(args: argparse.Namespace) -> None:
    from llama_py_tools.models.hub import download_model

    asked = read(args, FileParams)
    for name in read(args, PullParams).models:
        session.write(download_model(replace(asked, hf_repo=name)) + "\n")
