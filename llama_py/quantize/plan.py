"""Plan a quantized file: the new type of each tensor, and the metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ggml_py.errors import GGUFError
from ggml_py.types import GGMLType
from llama_py.gguf.file import GGUFFile, TensorInfo
from llama_py.gguf.file_types import FileType, guess_type
from llama_py.gguf.forms import file_size
from llama_py.gguf.write import encode
from llama_py.quantize.allowed import fitting, is_allowed, wants_imatrix
from llama_py.quantize.imatrix.file import Imatrix
from llama_py.quantize.mix import EMBEDDINGS, OUTPUT, Mix, get_category
from llama_py.quantize.model import QuantizedModel
from llama_py.quantize.prune import order, pruned_metadata, rename_tensors

QUANTIZATION_VERSION = 2  # GGML_QNT_VERSION
SPLIT = ("split.no", "split.count", "split.tensors.count")
NO_BYTES = np.empty(0, np.uint8)  # data of tensors before quantization
MOST_TEXT = 127  # maximum bytes of a string in llama.cpp's metadata


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """Options for quantizing a file; see llama_py_tools.gguf.quantize."""

    type: FileType
    pure: bool = False
    leave_output: bool = False
    output_type: GGMLType | None = None
    embedding_type: GGMLType | None = None
    tensor_types: Sequence[tuple[str, GGMLType]] = ()
    allow_requantize: bool = False
    prune: Sequence[int] = ()
    overrides: Mapping[str, bool | int | float | str] | None = None
    keep_split: bool = False


@dataclass(frozen=True)
class TensorJob:
    """Quantization of one tensor.

    source  tensor in the file; its bytes are copied if `type` is its type
    name    new name
    part    index of its shard, if the output has shards
    fell_back  True if the chosen type does not fit the tensor's rows
    """

    source: TensorInfo
    name: str
    type: GGMLType
    part: int
    fell_back: bool
    wants_imatrix: bool

    @property
    def copies(self) -> bool:
        return self.type == self.source.type

    @property
    def nbytes(self) -> int:
        """Size in bytes of the new tensor in a file."""
        if self.copies:
            return self.source.as_stored().nbytes
        return file_size(self.type, self.source.ne)

    @property
    def target_info(self) -> TensorInfo:
        """Return the new tensor's name, type and shape."""
        source = self.source
        if self.copies:
            return source.as_stored().rename(self.name)
        return TensorInfo(self.name, self.type, source.ne, source.offset, self.nbytes, NO_BYTES)


def jobs(file: GGUFFile, wishes: Wishes, imatrix: Imatrix | None) -> list[TensorJob]:
    """Return a job for each tensor, in the order of the new file.

    Raises GGUFError if no type fits, and for tensors that are quantized already.
    """
    model, parts = QuantizedModel.from_file(file), _parts(file)
    tensors = sorted(file.tensors.values(), key=lambda t: order(t.name))
    names = rename_tensors((t.name for t in tensors), wishes.prune)
    tensors = [t for t in tensors if t.name in names]
    if wishes.keep_split:
        tensors.sort(key=lambda t: (parts[id(t.mapped)], t.offset))
    choice = _Choice(wishes, model, list(names.values()), imatrix is not None)
    return [choice.job(t, names[t.name], parts[id(t.mapped)]) for t in tensors]


def _parts(file: GGUFFile) -> dict[int, int]:
    """Return the index of each shard, by the id of its mapping."""
    seen = dict.fromkeys(id(t.mapped) for t in file.tensors.values())
    return {part: number for number, part in enumerate(seen)}


class _Choice:
    """Choice of a tensor's type (llama-quant.cpp:llama_tensor_get_type)."""

    def __init__(
        self, wishes: Wishes, model: QuantizedModel, names: Sequence[str], has_imatrix: bool
    ) -> None:
        self.wishes, self.model = wishes, model
        self.patterns = [(re.compile(p), t) for p, t in wishes.tensor_types]
        if wishes.type.type is not None:
            self.default = wishes.type.type
            self.mix = Mix(
                wishes.type.name,
                self.default,
                model,
                names,
                has_imatrix,
                wishes.output_type,
                wishes.embedding_type,
            )

    def job(self, t: TensorInfo, name: str, part: int) -> TensorJob:
        wanted = self._choose_type(t.rename(name))
        type = fitting(t, wanted) if wanted.is_quantized and wanted != t.type else wanted
        if type != t.type and t.type.is_quantized and not self.wishes.allow_requantize:
            raise GGUFError(
                f"{name} is already {t.type}, so quantizing it to {type} loses more precision; "
                "quantize the original model, or use llama-py-gguf quantize --allow-requantize"
            )
        needs = type != t.type and wants_imatrix(name, type, self.wishes.type.name)
        return TensorJob(t, name, type, part, type != wanted, needs)

    def _choose_type(self, t: TensorInfo) -> GGMLType:
        wishes = self.wishes
        if wishes.type.copies or not is_allowed(t, self.model, wishes.leave_output):
            return t.type
        named = next((type for p, type in self.patterns if p.search(t.name)), None)
        by_name = t.name != EMBEDDINGS[0] and named is not None
        if wishes.embedding_type and get_category(t.name) == "embedding" and not by_name:
            return wishes.embedding_type
        if wishes.output_type and t.name == OUTPUT:
            return wishes.output_type
        if not self.default.is_quantized:
            return self.default
        if named is not None:
            return named
        return self.default if wishes.pure else self.mix.choose(t)


def metadata(
    file: GGUFFile, wishes: Wishes, work: Sequence[TensorJob], imatrix: Imatrix | None
) -> dict[str, bytes]:
    """Return key-values of the new file; new or changed values are last, like in llama.cpp."""
    stored = file.metadata.stored_values
    number = wishes.type.number
    if wishes.type.copies:
        kept = file.metadata.get("general.file_type")
        types = {name: t.type for name, t in file.tensors.items()}
        number = kept if isinstance(kept, int) else guess_type(types)
    new = {
        "general.quantization_version": encode("u32", QUANTIZATION_VERSION),
        "general.file_type": encode("u32", number),
    }
    given = dict(wishes.overrides or {})
    if imatrix is not None:
        given |= _of_imatrix(imatrix)
    for key, value in given.items():
        new.pop(key, None)
        new[key] = _encode_value(value)
    if wishes.prune:
        for key, raw in pruned_metadata(file, wishes.prune).items():
            new.pop(key, None)
            new[key] = raw
    kept_keys = {k: raw for k, raw in stored.items() if k not in new and k not in SPLIT}
    return kept_keys | new


def _of_imatrix(imatrix: Imatrix) -> dict[str, str | int]:
    found: dict[str, str | int] = {"quantize.imatrix.file": imatrix.path}
    if imatrix.datasets:
        found["quantize.imatrix.dataset"] = imatrix.datasets[0]
    found["quantize.imatrix.entries_count"] = len(imatrix.entries)
    if imatrix.n_chunks > 0:
        found["quantize.imatrix.chunks_count"] = imatrix.n_chunks
    return found


def _encode_value(value: bool | int | float | str) -> bytes:
    if isinstance(value, bool):
        return encode("bool", value)
    if isinstance(value, int):
        return encode("u32", abs(value) & 0xFFFFFFFF)
    if isinstance(value, float):
        return encode("f32", value)
    return encode("str", value.encode()[:MOST_TEXT].decode("utf-8", "ignore"))


def check_imatrix(work: Sequence[TensorJob], imatrix: Imatrix | None) -> None:
    """Raise GGUFError if a tensor's required importance is missing or has the wrong size."""
    for job in work:
        found = None if imatrix is None else imatrix.weights(job.source.name)
        if job.wants_imatrix and found is None:
            raise GGUFError(
                f"{job.name}: type {job.type} needs an importance matrix; {_remedy(job, imatrix)}"
            )
        if found is not None and not job.copies and get_category(job.name) != "embedding":
            wanted = job.source.ne[0] * job.source.ne[2]
            if found.size != wanted:
                raise GGUFError(
                    f"{job.name}: the importance matrix has {found.size} values for it, expected "
                    f"{wanted}; use a matrix of the same model"
                )


def _remedy(job: TensorJob, imatrix: Imatrix | None) -> str:
    if imatrix is None:
        return "pass --imatrix FILE, which llama-py-imatrix creates"
    return (
        f"{imatrix.path} was collected without this tensor, as for MTP layers; "
        f"set another type, such as --tensor-type '{re.escape(job.name)}=q4_K'"
    )


def out_path(path: Path, n: int, n_parts: int) -> Path:
    """Return the path of shard n."""
    from llama_py.gguf.parts import part_name

    prefix = str(path).removesuffix(".gguf")
    return Path(part_name(prefix, n, n_parts))
