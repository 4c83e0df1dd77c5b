"""Export of a GGUF file to a folder of Hugging Face: the inverse of a conversion (convert.py).

The inverse of each declaration of a converter is declared next to it: `restore` of `tensors`,
`restore_config` of `keys`, `unselect` of `select`. A plan is checked by a conversion of its result.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ggml_py.errors import ModelError
from ggml_py.types import BF16, F16, F32, GGMLType
from llama_py.checkpoint.arrays import Array, LazyArray
from llama_py.checkpoint.convert import wrap_errors
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.exported_tokens import StoredTokens, tokenizer_files
from llama_py.checkpoint.floats import from_bits
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.folder_writer import FolderTensor, write_checkpoint
from llama_py.checkpoint.metadata import SAMPLING, write_card
from llama_py.checkpoint.models import exporters
from llama_py.checkpoint.names import find_layer
from llama_py.checkpoint.output import choose_type
from llama_py.checkpoint.sources import STORED, SourceArray, narrow
from llama_py.checkpoint.stored import StoredModel
from llama_py.gguf.file import GGUFFile, TensorInfo
from llama_py.params.near import did_you_mean

OUTTYPES: Mapping[str, GGMLType | None] = {"auto": None, "f32": F32, "f16": F16, "bf16": BF16}
DTYPES = {F32: "float32", F16: "float16", BF16: "bfloat16"}
CARD = "README.md"  # model card, which needs PyYAML to be read
MAX_SHARD = 5 * 10**9  # bytes, as in transformers 4
# Keys that do not describe the tensors or the calculation
UNCHECKED = ("vocab_size",)


@dataclass(frozen=True)
class ExportOptions:
    """outtype  type of matrices; "auto": as in the file, and F16 for quantized tensors
    max_shard_size  bytes of tensors in a file of weights; 0: no limit
    """

    outtype: str = "auto"
    max_shard_size: int = MAX_SHARD


@dataclass(frozen=True)
class FolderPlan:
    """The files of a new folder: small files by name, and tensors."""

    files: Mapping[str, bytes]
    tensors: list[FolderTensor]


def export(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    options: ExportOptions | None = None,
    force: bool = False,
) -> list[str]:
    """Write a model file as a folder of Hugging Face, which appears when it is complete.

    force  replace files of an existing folder

    Returns the names of the files. Raises ModelError for a model that cannot be exported, and for
    a folder with files.
    """
    options = options or ExportOptions()
    with GGUFFile.open(path) as file:
        made = plan_export(file, options)
        return write_checkpoint(
            Path(folder), made.files, made.tensors, options.max_shard_size, force
        )


def plan_export(file: GGUFFile, options: ExportOptions | None = None) -> FolderPlan:
    """Return the files of the folder that is converted to this file.

    Reads metadata, norms and other small tensors. Raises ModelError if the model cannot be
    exported: an unknown architecture, or a value that config.json cannot express.
    """
    with wrap_errors(file.path):
        options = options or ExportOptions()
        kind, wanted = find_exporter(file.architecture), choose_outtype(file, options)
        model = StoredModel(file)
        files = small_files(kind, model, wanted)
        with tempfile.TemporaryDirectory() as temporary:
            read = {name: text for name, text in files.items() if name != CARD}
            converter = open_converter(kind, read, Path(temporary), wanted, model)
            tensors = list(_restore(converter, model, wanted, options.outtype == "auto"))
            _check(converter, model, tensors)
    return FolderPlan(files, tensors)


def find_exporter(arch: str) -> type[Converter]:
    """Return the converter of an architecture. Raises ModelError if it cannot export."""
    found = exporters().get(arch)
    if found is None:
        hint = did_you_mean(arch, exporters())
        known = ", ".join(sorted(exporters()))
        raise ModelError(
            f"models of the architecture {arch[:50]!r} cannot be exported; "
            f"{hint + '; ' if hint else ''}known: {known}"
        )
    return found


def choose_outtype(file: GGUFFile, options: ExportOptions) -> GGMLType:
    """Return the type of quantized matrices, and of config.json."""
    if options.outtype not in OUTTYPES:
        raise ModelError(f"outtype must be {', '.join(OUTTYPES)}, got {options.outtype!r}")
    if (asked := OUTTYPES[options.outtype]) is not None:
        return asked
    sizes = dict.fromkeys((F32, F16, BF16), 0)
    is_quantized = False
    for t in file.tensors.values():
        is_quantized = is_quantized or t.type.is_quantized
        if t.type in sizes and len(t.dims) > 1:
            sizes[t.type] += math.prod(t.ne)
    if is_quantized:
        del sizes[F32]  # of tensors that quantization does not change
    size, best = max((size, -type.id) for type, size in sizes.items())
    return next(type for type in sizes if type.id == -best) if size else F16


def small_files(kind: type[Converter], model: StoredModel, type: GGMLType) -> dict[str, bytes]:
    """Return all files but weights; type: of most matrices."""
    name, tokens = kind.choose_class(model), StoredTokens(model)
    ids = {f"{role}_token_id": i for role, i in tokens.ids.items() if role in ("bos", "eos", "pad")}
    config = {"architectures": [name], "model_type": kind.exports[name]}
    config |= {**kind.restore_config(model), **ids, "dtype": DTYPES[type]}
    sampling = {
        names[-1]: value
        for key, _, names in SAMPLING
        if (value := model.get(f"general.sampling.{key}")) is not None
    }
    files = {"config.json": _json(config), **tokenizer_files(model, kind.nfc)}
    if ids or sampling:
        files["generation_config.json"] = _json({**ids, **sampling})
    if card := write_card(model.file.metadata):
        files[CARD] = card.encode()
    return files


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def open_converter(
    kind: type[Converter],
    files: Mapping[str, bytes],
    where: Path,
    type: GGMLType,
    model: StoredModel,
) -> Converter:
    """Write the small files to `where`, and return the converter of this folder."""
    for name, content in files.items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_bytes(content)
    folder = CheckpointFolder(where)
    folder.__dict__["tensors"] = {}
    pre = model.get("tokenizer.ggml.pre", "default")
    return kind(folder, ConvertOptions(outtype=type.name, pre=pre))


def _restore(
    c: Converter, model: StoredModel, wanted: GGMLType, is_auto: bool
) -> Iterator[FolderTensor]:
    """Yield the tensors of the folder. Sets them in the converter's folder."""
    c.folder.__dict__["tensors"] = stored = dict[str, LazyArray]()
    c.n_layer = model.n_layer + model.n_draft
    for t in model.file.tensors.values():
        if t.name in c.derived:
            continue
        source = SourceArray.from_tensor(t, _source_type(t, wanted, is_auto))
        for name, array in c.restore(t.name, source, find_layer(t.name)):
            name, array = c.unselect(name), narrow(array, wanted)
            stored[name] = _as_stored(array)
            yield FolderTensor(name, array, (t,))


def _source_type(t: TensorInfo, wanted: GGMLType, is_auto: bool) -> GGMLType:
    """Return the type of a tensor's elements in the folder, before `narrow`."""
    if t.type not in STORED:
        if not t.type.is_quantized:
            raise ModelError(
                f"{t.name} of type {t.type} cannot be exported, only quantized types and "
                f"{', '.join(map(str, STORED))}"
            )
        return wanted
    if is_auto:
        return t.type
    shape = LazyArray(t.dims[::-1], np.float32, lambda: np.empty(0))
    return wanted if choose_type(t.name, shape, wanted) == wanted else t.type


def _as_stored(array: LazyArray) -> LazyArray:
    """Return an array as a converter reads it from a folder."""
    dtype = np.float16 if array.stored == "F16" else np.float32

    def read() -> Array:
        return from_bits(array.stored, array.read())

    return LazyArray(array.shape, dtype, read, array.stored)


def _check(c: Converter, model: StoredModel, tensors: list[FolderTensor]) -> None:
    """Raise ModelError if a conversion of the folder has other keys or tensors than the file."""
    if model.get("tokenizer.ggml.model") in (None, "none") or not c.folder.has("tokenizer.json"):
        c.vocabulary = lambda v: None  # type: ignore[method-assign]
    path = model.file.path
    made = {t.name: (*t.dims, 1, 1, 1)[:4] for t in c.convert()}
    expected = {t.name: t.ne for t in model.file.tensors.values()}
    names = sorted(made.keys() | expected.keys())
    if differ := [name for name in names if made.get(name) != expected.get(name)]:
        raise ModelError(
            f"{path}: {len(differ)} tensors have no counterpart in a checkpoint of "
            f"{c.folder.model_name}, the first is {differ[0]!r}: {expected.get(differ[0])} in the "
            f"file, {made.get(differ[0])} after a conversion"
        )
    back = GGUFFile.from_values(path, c.out.stored, {}).metadata
    for key in model.file.metadata:
        name = key.removeprefix(f"{model.arch}.")
        if name == key or name in UNCHECKED or key not in back:
            continue
        ours, theirs = (np.asarray(m[key]) for m in (back, model.file.metadata))
        if ours.shape != theirs.shape or not _are_equal(ours, theirs):
            raise ModelError(
                f"{path}: config.json of {c.folder.model_name} cannot express {key} = "
                f"{str(theirs.tolist())[:50]}; a conversion would write {str(ours.tolist())[:50]}"
            )


def _are_equal(a: Array, b: Array) -> bool:
    if a.dtype.kind == b.dtype.kind == "f":
        return bool(np.allclose(a, b, rtol=1e-6, atol=0))
    return bool(np.array_equal(a, b))
