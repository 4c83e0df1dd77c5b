"""LoRA adapters of GGUF files as folders of PEFT: the inverse of adapter.py."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ggml_py.errors import ModelError
from ggml_py.types import F32
from llama_py.checkpoint.adapter import CONFIG, WEIGHTS, LowRankArray
from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.convert import wrap_errors
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.export import FolderPlan, find_exporter, open_converter, small_files
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.folder_writer import FolderTensor, write_checkpoint
from llama_py.checkpoint.models import converter
from llama_py.checkpoint.names import find_layer
from llama_py.checkpoint.sources import STORED, SourceArray
from llama_py.checkpoint.stored import StoredModel
from llama_py.gguf.file import GGUFFile, TensorInfo

PREFIX = "base_model.model."
EMBEDDINGS = "token_embd.weight"


def is_adapter_file(file: GGUFFile) -> bool:
    """Return True for a file of a LoRA adapter."""
    return file.metadata.get("general.type") == "adapter"


def export_adapter(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    base: str | os.PathLike[str],
    force: bool = False,
) -> list[str]:
    """Write an adapter as a folder of PEFT. -> names of the files

    base   the model that it changes: a GGUF file, or a folder with config.json
    force  replace files of an existing folder

    Raises ModelError for an adapter of another model, and for a folder with files.
    """
    with GGUFFile.open(path) as file:
        made = plan_adapter_export(file, base)
        names = write_checkpoint(Path(folder), made.files, made.tensors, 0, force, weights=WEIGHTS)
    return names


def plan_adapter_export(file: GGUFFile, base: str | os.PathLike[str]) -> FolderPlan:
    """Return the files of the folder that is converted to this adapter; see `export_adapter`."""
    with wrap_errors(file.path), tempfile.TemporaryDirectory() as temporary:
        alpha = file.metadata.get("adapter.lora.alpha")
        if not is_adapter_file(file) or not isinstance(alpha, float):
            raise ModelError(f"{file.path}: not a LoRA adapter; export a model without --base")
        chosen = _open_base(Path(base), Path(temporary))
        if chosen.arch != file.architecture:
            raise ModelError(
                f"{file.path}: an adapter of the architecture {file.architecture}, but {base} has "
                f"{chosen.arch}; name the model that it was made for (--base)"
            )
        tensors = list(_restore(chosen, file))
        ranks = {
            module.removeprefix(PREFIX): t.array.shape[0]
            for t in tensors
            for module, part, _ in [t.name.partition(".lora_")]
            if part and t.name.endswith(("_A", "_A.weight"))
        }
    rank = max(ranks.values(), default=1)
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base),
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted(ranks),
        "rank_pattern": {name: n for name, n in ranks.items() if n != rank},
        "inference_mode": True,
    }
    tokens = file.metadata.get("adapter.alora.invocation_tokens")
    if tokens is not None:
        config["alora_invocation_tokens"] = [int(i) for i in tokens]  # type: ignore[union-attr]
    text = json.dumps(config, indent=2) + "\n"
    return FolderPlan({CONFIG: text.encode()}, tensors)


def _open_base(base: Path, temporary: Path) -> Converter:
    """Return the converter of the model, by its folder or its file."""
    if base.is_dir():
        folder = CheckpointFolder(base)
        return converter(folder.model_name)(folder, ConvertOptions(nextn=False))
    with GGUFFile.open(base) as file:
        model = StoredModel(file)
        kind = find_exporter(model.arch)
        files = {"config.json": small_files(kind, model, F32)["config.json"]}
        return open_converter(kind, files, temporary, F32, model)


def _restore(c: Converter, file: GGUFFile) -> Iterator[FolderTensor]:
    """Yield the factors of the changed matrices, and changed norms."""
    for t in file.tensors.values():
        name, _, part = t.name.rpartition(".")
        if part == "lora_b":
            continue
        sources: tuple[TensorInfo, ...] = (t,)
        array = _source(t, 1)
        if part == "lora_a":
            other = file.tensors.get(f"{name}.lora_b")
            if other is None:
                raise ModelError(
                    f"{file.path}: {name}.lora_b is missing; convert the adapter again"
                )
            a, sources = _source(t, 2), (t, other)
            a = a.transpose() if name == EMBEDDINGS else a
            array = LowRankArray(a, _source(other, 2))
        name = name if part == "lora_a" else t.name
        for stored, one in c.restore(name, array, find_layer(name)):
            stored = PREFIX + c.unselect(stored)
            if not isinstance(one, LowRankArray):
                yield FolderTensor(stored, one, sources)
                continue
            is_table = name == EMBEDDINGS
            module, end = stored.removesuffix(".weight"), "" if is_table else ".weight"
            kind = "lora_embedding_" if is_table else "lora_"
            yield FolderTensor(f"{module}.{kind}A{end}", one.a, sources)
            yield FolderTensor(f"{module}.{kind}B{end}", one.b, sources)


def _source(t: TensorInfo, least: int) -> LazyArray:
    if t.type not in STORED:
        raise ModelError(
            f"{t.name} of type {t.type} cannot be exported; adapters must be f32, f16 or bf16"
        )
    return SourceArray.from_tensor(t, t.type, least)
