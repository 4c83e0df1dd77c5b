"""Command `llama-py-gguf convert`: a Hugging Face checkpoint as a GGUF file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ggml_py.errors import ModelError
from llama_py.params.option import Params, option
from llama_py.params.rules import integers
from llama_py.params.texts import file_type_name
from llama_py_tools.command.options import read
from llama_py_tools.gguf.sizes import parse_size
from llama_py_tools.models import session

if TYPE_CHECKING:
    from llama_py.checkpoint.converter import Converter
    from llama_py.checkpoint.output import NewTensor
    from llama_py.checkpoint.shards import SplitLimits

EPILOG = """The folder needs config.json, the tokenizer's files and *.safetensors.

examples:
  llama-py-gguf convert my-model model.gguf
  llama-py-gguf convert --quantize Q4_K_M my-model small.gguf
  llama-py-gguf convert --base my-model my-adapter adapter.gguf
"""


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
        "type of matrices: f32, f16, bf16, q8_0, or auto (type of the first matrix)",
        metavar="TYPE",
        env="",
    )
    base: str = option(
        "",
        "--base",
        "for a LoRA adapter: folder with config.json of the model that it changes",
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
        "name of the pre-tokenizer (default: recognized by the tokens of a test string)",
        metavar="NAME",
        env="",
    )
    dense: bool = option(
        False,
        "--sentence-transformers-dense-modules",
        "also convert the layers after the pooling",
        env="",
    )
    target: str = option(
        "",
        "--target-model-dir",
        "folder of the model that a draft model belongs to",
        metavar="FOLDER",
        env="",
    )
    mmproj: bool = option(
        False,
        "--mmproj",
        "convert the encoders of images and sound instead of the text model",
        env="",
    )
    no_nextn: bool = option(
        False, "--no-nextn --no-mtp", "omit the layers that draft tokens", env=""
    )
    mtp: bool = option(
        False, "--mtp", "convert only the layers that draft tokens, as a separate file", env=""
    )
    dspark: bool = option(
        False,
        "--dspark",
        "convert only the DSpark layers of DeepSeek-V4, as a separate file",
        env="",
    )
    quantize: str = option(
        "",
        "--quantize",
        "type to quantize the model to, such as Q4_K_M",
        parse=file_type_name,
        metavar="TYPE",
        env="",
    )
    imatrix: str = option(
        "", "--imatrix", "importance matrix of --quantize", metavar="FILE", env=""
    )
    max_tensors: int = option(
        0,
        "--split-max-tensors",
        "maximum tensors per shard (0: no limit)",
        check=integers(0),
        env="",
    )
    max_size: int = option(
        0,
        "--split-max-size",
        "maximum bytes of tensors per shard (0: no limit)",
        parse=parse_size,
        metavar="N[K|M|G]",
        check=integers(0),
        env="",
    )
    first_empty: bool = option(
        False, "--no-tensor-first-split", "write only metadata to the first shard", env=""
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
    from llama_py.checkpoint.mmproj import media_converters
    from llama_py.checkpoint.models import converters
    from llama_py.checkpoint.shards import SplitLimits
    from llama_py_tools.gguf.write import check_free

    o = read(args, ConvertParams)
    if o.listed:
        known = media_converters() if o.mmproj else converters()
        for name, kind in sorted(known.items()):
            session.write(f"{name:40} {kind.arch}\n")
        return
    if o.no_nextn + o.mtp + o.dspark > 1:
        raise ModelError(f"{o.folder}: use only one of --mtp, --dspark and --no-nextn")
    options = ConvertOptions(
        o.outtype.lower(),
        o.model_name,
        o.pre,
        nextn=not o.no_nextn,
        draft="mtp" if o.mtp else "dspark" if o.dspark else "",
        overrides=_overrides(o.metadata),
        dense=o.dense,
        target=Path(o.target) if o.target else None,
        mmproj=o.mmproj,
    )
    if is_adapter(o.folder):
        if not o.base:
            raise ModelError(f"{o.folder} is a LoRA adapter; name its model: --base FOLDER")
        if o.outtype == "auto":
            options = replace(options, outtype="f32")
        chosen, tensors = plan_adapter(o.folder, o.base, options)
    else:
        chosen, tensors = plan(o.folder, options)
    limits = SplitLimits(o.max_tensors, o.max_size, o.first_empty)
    out = Path(o.output or Path(o.folder) / _file_name(chosen, o.quantize))
    if o.quantize:
        _quantize(o, chosen, tensors, out, limits)
        return
    files = list(list_files(out, chosen, tensors, limits))
    if o.dry_run:
        for t in tensors:
            session.write(f"{t.name:40} {t.type!s:5} [{', '.join(map(str, t.dims))}]\n")
        for path, _, parts in files if len(files) > 1 else ():
            session.write(f"{path}: {len(parts)} tensors\n")
        return
    for path, *_ in files:
        check_free(path, o.force)
    for path, stored, parts in files:
        write(path, stored, parts)


def _file_name(chosen: Converter, quantize: str) -> str:
    """Return the name of the file, which ends with its type."""
    if not quantize:
        return chosen.file_name
    return f"{chosen.file_name.rpartition('-')[0]}-{quantize}.gguf"


def _quantize(
    o: ConvertParams,
    chosen: Converter,
    tensors: Sequence[NewTensor],
    out: Path,
    limits: SplitLimits,
) -> None:
    """Write the model as `quantize` would write the converted file."""
    from ggml_py.machine.host import logical_cpus
    from llama_py.checkpoint.adapter import is_adapter
    from llama_py.checkpoint.open import open_planned
    from llama_py.gguf.file_types import file_type
    from llama_py.quantize.plan import Wishes
    from llama_py_tools.gguf.quantize import find_imatrix, quantize_file

    if is_adapter(o.folder) or next(chosen.adapters(), None) is not None:
        raise ModelError(f"{o.folder}: adapters cannot be quantized; convert without --quantize")
    wishes, imatrix = Wishes(type=file_type(o.quantize)), find_imatrix(o.imatrix, (), ())
    file = open_planned(o.folder, chosen, tensors)
    threads = len(logical_cpus())
    quantize_file(file, out, wishes, imatrix, o.dry_run, o.force, threads, limits)


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
