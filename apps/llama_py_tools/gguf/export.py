"""Command `llama-py-gguf export`: a GGUF file as a Hugging Face folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from ggml_py.errors import ModelError
from llama_py.params.option import Params, option
from llama_py.params.rules import integers
from llama_py_tools.command.options import read
from llama_py_tools.gguf.sizes import parse_size
from llama_py_tools.models import session

EPILOG = """IN is a model; with --base, a LoRA adapter, which becomes a folder of PEFT.

examples:
  llama-py-gguf export model.gguf model-folder
  llama-py-gguf export --base model.gguf adapter.gguf adapter-folder
  llama-py-gguf export --list
"""


class ExportParams(Params):
    """Options of the command `export`."""

    file: str = option("", "file", "model file, or any shard of a model", nargs="?", metavar="IN")
    folder: str = option("", "folder", "new folder", nargs="?", metavar="FOLDER")
    outtype: str = option(
        "auto",
        "--outtype",
        "type of matrices: f32, f16, bf16, or auto (type of the file, or f16 if it is quantized)",
        metavar="TYPE",
        env="",
    )
    max_shard_size: int = option(
        5 * 10**9,
        "--max-shard-size",
        "maximum bytes of tensors per file (0: no limit)",
        parse=parse_size,
        metavar="N[K|M|G]",
        check=integers(0),
        env="",
    )
    base: str = option(
        "",
        "--base",
        "for a LoRA adapter: file or folder of the model that it changes",
        metavar="PATH",
        env="",
    )
    listed: bool = option(
        False, "--list", "print the architectures that can be exported, and their classes", env=""
    )
    force: bool = option(False, "--force", "replace files of an existing folder", env="")


def run(args: argparse.Namespace) -> None:
    """Export a model or an adapter, or print the known architectures."""
    from llama_py.checkpoint.export import ExportOptions, plan_export
    from llama_py.checkpoint.exported_adapter import is_adapter_file, plan_adapter_export
    from llama_py.checkpoint.folder_writer import WEIGHTS, check_free_folder, write_checkpoint
    from llama_py.checkpoint.models import exporters
    from llama_py.gguf.file import GGUFFile
    from llama_py_tools.command.progress import Progress
    from llama_py_tools.gguf.sizes import show_size

    o = read(args, ExportParams)
    if o.listed:
        for arch, kind in sorted(exporters().items()):
            session.write(f"{arch:20} {', '.join(kind.exports)}\n")
        return
    folder = Path(o.folder)
    check_free_folder(folder, o.force)
    progress = Progress(f"writing {folder}")
    with GGUFFile.open(o.file) as file:
        is_adapter = is_adapter_file(file)
        if is_adapter and not o.base:
            raise ModelError(f"{o.file} is a LoRA adapter; name its model: --base PATH")
        if is_adapter or o.base:
            made, weights = plan_adapter_export(file, o.base), "adapter_model.safetensors"
        else:
            made, weights = plan_export(file, ExportOptions(o.outtype.lower())), WEIGHTS
        size, tensors = 0 if is_adapter else o.max_shard_size, made.tensors
        try:
            names = write_checkpoint(
                folder, made.files, tensors, size, o.force, weights=weights, progress=progress
            )
        except OSError as e:
            raise ModelError(f"{folder}: cannot be written: {e}") from None
        finally:
            progress.close()
    total = show_size(sum(t.nbytes for t in tensors))
    session.tell(f"{folder}: {len(tensors)} tensors, {total}, {len(names)} files")
