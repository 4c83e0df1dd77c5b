"""Conversion of a folder to a GGUF file: llama.cpp's convert_hf_to_gguf.py without torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ggml_py.errors import GGMLError, ModelError
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.mmproj import media_converter
from llama_py.checkpoint.models import converter
from llama_py.checkpoint.output import NewTensor, pieces
from llama_py.checkpoint.shards import SplitLimits, list_shards
from llama_py.support.whole_file import replace_file

DSPARK = {"DeepseekV4ForCausalLM": "DeepseekV4DSparkModel"}


def plan(
    path: str | os.PathLike[str], options: ConvertOptions | None = None
) -> tuple[Converter, list[NewTensor]]:
    """Return the converter of a folder, with all keys, and the tensors of the new file.

    Reads the headers of the weights only. Raises ModelError if the folder is not a checkpoint of a
    known model, or is incomplete.
    """
    with wrap_errors(path):
        folder = CheckpointFolder(Path(path))
        options = options or ConvertOptions()
        find = media_converter if options.mmproj else converter
        name = folder.media_name if options.mmproj else folder.model_name
        kind = find(DSPARK.get(name, name) if options.draft == "dspark" else name)
        is_other = options.draft == "dspark" and kind.arch != "dflash"
        if is_other or ((options.draft or not options.nextn) and not kind.has_nextn):
            raise ModelError(
                f"{folder.path}: files of {kind.arch} have no layers that draft tokens, or always "
                "have them; convert without --mtp, --dspark and --no-nextn"
            )
        chosen = kind(folder, options)
        return chosen, chosen.convert()


# Errors of code that expects other types in a JSON file.
FOREIGN = (
    ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError
)  # fmt: skip


@contextmanager
def wrap_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise ModelError in place of errors that JSON files with wrong types cause. Each message has
    the path."""
    try:
        yield
    except ModelError as e:
        where = str(Path(path))  # without ./
        if where in str(e):
            raise
        raise ModelError(f"{where}: {e}") from e
    except GGMLError:
        raise
    except FOREIGN as e:
        what = f"{type(e).__name__}: {e}".splitlines()[0][:200]
        raise ModelError(
            f"{path}: config.json or the tokenizer's files have an unexpected form ({what}); "
            "download them again"
        ) from e


def convert(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: ConvertOptions | None = None,
    limits: SplitLimits | None = None,
) -> None:
    """Convert a checkpoint; each file appears when it is complete. See `plan` for errors.

    limits  of shards, `OUTPUT-00001-of-00003.gguf`, ...; None: one file

    Adapters of the checkpoint are further files, `lora-TASK-NAME` in the same folder.
    """
    chosen, tensors = plan(path, options)
    for file, stored, parts in list_files(Path(output), chosen, tensors, limits):
        replace_file(file, pieces(stored, parts))


def list_files(
    output: Path, chosen: Converter, tensors: list[NewTensor], limits: SplitLimits | None = None
) -> Iterator[tuple[Path, dict[str, bytes], list[NewTensor]]]:
    """Yield the files of a conversion, the model and its adapters: path, keys, tensors."""
    yield from list_shards(output, chosen.out.stored, tensors, limits or SplitLimits())
    for task, out, parts in chosen.adapters():
        yield output.with_name(f"lora-{task}-{output.name}"), out.stored, parts
