"""Command llama-py list: models with a short name, their sizes and locations."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from llama_py_tools.command.options import OptionParser
from llama_py_tools.command.params import CommonParams
from llama_py_tools.models import session


def parser() -> OptionParser:
    p = OptionParser(
        "llama-py list",
        ("-v",),
        usage="%(prog)s",
        description="List models by short name: files in LLAMA_PY_MODELS, in the folder of"
        " --model-url, and in the cache of the Hugging Face Hub. Then models that clients of"
        " llama-py-server created from them.",
    )
    p.add(CommonParams)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (docs/commands.md)."""
    return session.run(_command, parser().parse_args(argv))


def _command(args: argparse.Namespace) -> None:
    from llama_py_tools.models.created import read_created
    from llama_py_tools.models.local_models import PULL, folders, known_models

    models, made = known_models(), read_created()
    width = max(map(len, (*models, *made)), default=0)
    for name, path in sorted(models.items(), key=lambda one: one[0].lower()):
        session.write(f"{name:{width}}  {_size(path):>9}  {path}\n")
    for name, recipe in sorted(made.items(), key=lambda one: one[0].lower()):
        source = recipe.get("from") or "uploaded files"
        session.write(f"{name:{width}}  {'created':>9}  from {source}\n")
    if not models and not made:
        where = ", ".join(map(str, folders()))
        session.tell(
            f"no models in {where} or the Hugging Face cache; download one, such as: {PULL}\n"
        )


def _size(path: Path) -> str:
    parts = path.parent.glob(path.name.replace("-00001-of-", "-*-of-"))
    return f"{sum(part.stat().st_size for part in parts) / 2**20:.0f} MiB"
