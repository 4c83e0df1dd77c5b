"""Command `llama-py-gguf convert`: a Hugging Face checkpoint as a GGUF file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ggml_py.errors import ModelError
from llama_py.params.option import Params, option
from llama_py_tools.command.options import read
from llama_py_tools.models import session

EPILOG = "The folder needs config.json, the tokenizer's files and *.safetensors."


class ConvertParams(Params):
    """Options of the command `convert` (as in convert_hf_to_gguf.py)."""

    folder: str = option("", "folder", "folder of the checkpoint", nargs="?", metavar="FOLDER")
    output: str = option(
        "",
        "output",
        "new file; default: in the folder, by the model's name",
        nargs="?",
        metavar="OUT",
    )
    outtype: str = option(
        "auto",
        "--outtype",
        "type of matrices: f32, f16, bf16, q8_0, or auto (the first matrix's)",
        metavar="TYPE",
        env="",
    )
    base: str = option(
        "",
        "--base",
        "of a LoRA adapter: folder with config.json of the model that it changes",
        metavar="FOLDER",
        env="",
    )
    model_name: str = option("", "--model-name", "name of the model", metavar="NAME", env="")
    metadata: str = option(
        "", "--metadata", "JSON file with values of general.*, by key", metavar="FILE", env=""
    )
    pre: str = option(
        "",
        "--pre",
        "name of the pre-tokenizer (default: found by the tokens of a text)",
        metavar="NAME",
        env="",
    )
    dense: bool = option(
        False,
        "--sentence-transformers-dense-modules",
        "convert the layers after the pooling as well",
        env="",
    )
    target: str = option(
        "",
        "--target-model-dir",
        "folder of the model that a draft model belongs to",
        metavar="FOLDER",
        env="",
    )
    no_nextn: bool = option(
        False, "--no-nextn --no-mtp", "convert without layers that draft tokens", env=""
    )
    dry_run: bool = option(False, "--dry-run", "print the tensors without writing them", env="")
    listed: bool = option(
        False, "--list", "print the classes of models that can be converted", env=""
    )
    force: bool = option(False, "--force", "overwrite an existing file", env="")


def run(args: argparse.Namespace) -> None:
    """Convert a checkpoint, or print the tensors of the new file."""
    from llama_py.checkpoint.adapter import is_adapter, plan_adapter
    from llama_py.checkpoint.convert import list_files, plan
    from llama_py.checkpoint.converter import ConvertOptions
    from llama_py.checkpoint.models import converters
    from llama_py_tools.gguf.write import check_free

    o = read(args, ConvertParams)
    if o.listed:
        for name, kind in sorted(converters().items()):
            session.write(f"{name:40} {kind.arch}\n")
        return
    options = ConvertOptions(
        o.outtype.lower(),
        o.model_name,
        o.pre,
        not o.no_nextn,
        _overrides(o.metadata),
        o.dense,
        Path(o.target) if o.target else None,
    )
    if is_adapter(o.folder):
        if not o.base:
            raise ModelError(f"{o.folder} is a LoRA adapter; name its model: --base FOLDER")
        if o.outtype == "auto":
            options = replace(options, outtype="f32")
        chosen, tensors = plan_adapter(o.folder, o.base, options)
    else:
        chosen, tensors = plan(o.folder, options)
    if o.dry_run:
        for t in tensors:
            session.write(f"{t.name:40} {t.type!s:5} [{', '.join(map(str, t.dims))}]\n")
        return
    out = Path(o.output or Path(o.folder) / chosen.file_name)
    for path, stored, parts in list_files(out, chosen, tensors):
        write(check_free(path, o.force), stored, parts)


def write(path: Path, stored: dict[str, bytes], tensors: list[Any]) -> None:
    """Write the file with a display of the progress."""
    from llama_py.checkpoint.output import pieces
    from llama_py.support.whole_file import replace_file
    from llama_py_tools.command.progress import Progress
    from llama_py_tools.gguf.sizes import show_size

    total, progress = sum(t.nbytes for t in tensors), Progress(f"writing {path.name}")

    def report() -> Iterator[memoryview]:
        done = 0
        for piece in pieces(stored, tensors):
            yield piece
            done += len(piece)
            progress(min(done, total), total, show_size(done))

    try:
        replace_file(path, report())
    finally:
        progress.close()
    session.tell(f"{path}: {len(tensors)} tensors, {show_size(total)}")


def _overrides(path: str) -> dict[str, Any]:
    from llama_py.checkpoint.metadata import read_overrides

    if not path:
        return {}
    try:
        return read_overrides(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as e:
        raise ModelError(f"{path}: not a JSON object of metadata: {e}") from None
