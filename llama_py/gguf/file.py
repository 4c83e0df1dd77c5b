"""Reader of untrusted GGUF files: metadata and tensors from a memory map.

    with GGUFFile.open("model.gguf") as file:
        file.metadata[f"{file.architecture}.block_count"]   # 40
            file.tensors["token_embd.weight"].data   # uint8 view of the file, without a copy

A file is: magic, version, n_tensors, n_kv | key-values | tensor infos | padding | tensor data.
The reader accepts the files that llama.cpp accepts (gguf.cpp:gguf_init_from_reader): unique keys
and tensors, the data in the order of the infos, each padded to `general.alignment`, without gaps.
In addition, it accepts arrays of arrays; it refuses tensors without elements, names that are not
UTF-8, and headers of more than 128 MiB.
"""

from __future__ import annotations

import errno
import logging
import math
import mmap
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ggml_py.errors import AllocError, GGUFError
from ggml_py.machine import host
from ggml_py.types import TYPES, GGMLType
from llama_py.gguf.metadata import (
    DAMAGED,
    Cursor,
    Metadata,
    describe,
    printable,
    quote_text,
    read_metadata,
)
from llama_py.gguf.pages import release_pages
from llama_py.gguf.parts import check_part, part_paths, read_split
from llama_py.gguf.tensor_info import TensorInfo as TensorInfo
from llama_py.gguf.tensor_info import UnwoundTensor

if TYPE_CHECKING:
    from llama_py.gguf.forms import Form

log = logging.getLogger("llama_py")

_MAX_NAME_BYTES = 63  # GGML_MAX_NAME less its final zero
_MAX_DIMS = 4
_MAX_ELEMENTS = 2**63 - 1
_MAX_ALIGNMENT = 2**32 - 1
_MAX_GGML_ID = 96  # numbers above are of forks, some with another form in files
_NE, _LENGTH = Struct("<q"), Struct("<Q")

# Minimum size of an entry in a file.
_MIN_KEY_VALUE = 8 + 1 + 4 + 1
_MIN_TENSOR_INFO = 8 + 4 + 4 + 8

_CONVERT = "save it as safetensors, then use llama-py-gguf convert"
_FOREIGN = (
    (b"tjgg", "an old GGML model (ggjt); convert the original model to GGUF"),
    (b"fmgg", "an old GGML model (ggmf); convert the original model to GGUF"),
    (b"lmgg", "an old GGML model (ggml); convert the original model to GGUF"),
    (b"algg", "an old GGML adapter (ggla); convert the original adapter to GGUF"),
    (b"FUGG", "a byte-swapped GGUF file; get a little-endian one"),
    (b"PK\x03\x04", f"a zip archive (a PyTorch checkpoint?); {_CONVERT}"),
    (b"\x80", f"a Python pickle (a PyTorch checkpoint?); {_CONVERT}"),
    (b"\x1f\x8b", "compressed by gzip; uncompress it first"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself; run 'git lfs pull'"),
    (b"<", "a web page; download the file itself"),
)


class GGUFFile:
    """A model file, or all shards of a split one, mapped into memory. Created by `GGUFFile.open`.

    `path` is the file (the first part), `paths` all the parts, `version` the format's (2 or 3).
    """

    def __init__(self, parts: list[_Part]) -> None:
        self.paths = tuple(part.path for part in parts)
        self.path = self.paths[0]
        self.version = parts[0].version
        self._metadata: Metadata | None = parts[0].metadata
        self._tensors: dict[str, TensorInfo] = {}
        for part in parts:
            for name, tensor in part.tensors.items():
                if name in self._tensors:
                    where = "is also in an earlier part"
                    raise GGUFError(f"{part.path}: tensor {quote_text(name)} {where}; {DAMAGED}")
                self._tensors[name] = tensor

    @classmethod
    def open(cls, path: str | os.PathLike[str], use_mmap: bool = True) -> GGUFFile:
        """Open a GGUF file, or a split model by any of its shards.

        use_mmap  False: read the whole file now. If another program truncates a mapped file later,
                  reading it ends this process (SIGBUS)

        Raises GGUFError (one line: path, problem, remedy) for an invalid file.
        """
        given = _read_part(Path(path), use_mmap)
        split = read_split(given.path, given.metadata)
        if split is None:
            return cls([given])
        parts = []
        for no, part_path in enumerate(part_paths(given.path, split)):
            part = given if no == split.no else _read_part(part_path, use_mmap)
            check_part(part_path, read_split(part_path, part.metadata), replace(split, no=no))
            parts.append(part)
        file = cls(parts)
        if len(file.tensors) != split.n_tensors:
            raise GGUFError(
                f"{given.path}: the {split.count} parts have {len(file.tensors)} tensors, but "
                f"split.tensors.count is {split.n_tensors}; download all parts again"
            )
        return file

    @classmethod
    def from_values(
        cls, path: Path, stored: Mapping[str, bytes], tensors: Mapping[str, TensorInfo]
    ) -> GGUFFile:
        """Return a file that does not exist.

        path    place named in messages
        stored  key-values in the format of `llama_py.gguf.write.encode`
        """
        data = b"".join(map(_key_value, stored, stored.values()))
        area = mmap.mmap(-1, max(len(data), 1))
        area[: len(data)] = data
        metadata = read_metadata(Cursor(path, area), len(stored))
        return cls([_Part(path, 3, metadata, dict(tensors))])

    @property
    def metadata(self) -> Metadata:
        """Key to value; of a split model, the first part's."""
        if self._metadata is None:
            raise GGUFError(f"{self.path}: file is closed; read its metadata before you close it")
        return self._metadata

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """Name to tensor, of all the parts, in file order."""
        if self._metadata is None:
            raise GGUFError(f"{self.path}: file is closed; read its tensors before you close it")
        return self._tensors

    @property
    def architecture(self) -> str:
        """`general.architecture`; GGUFError if the file does not have it."""
        name = self.metadata.get("general.architecture")
        if not isinstance(name, str):
            raise GGUFError(
                f"{self.path}: not a model: the string general.architecture is missing; use the "
                "GGUF file of a model"
            )
        return name

    def override(self, values: Mapping[str, bool | int | float | str]) -> None:
        """Override metadata values (llama.cpp's kv_overrides)."""
        for key in values:
            if key not in self.metadata:
                log.warning("kv_overrides: key %s is not in the file; it is added", printable(key))
        self._metadata = self.metadata.replace_values(values)

    def forget_data(self) -> None:
        """Replace the data of tensors by zeros; keep their names, types and shapes.
        The file is unmapped, and its data is no longer read."""
        names_only = {
            name: TensorInfo(
                t.name, t.type, t.ne, t.offset, t.nbytes, _zeros(t.nbytes), path=t.path
            )
            for name, t in self.tensors.items()
        }
        self._tensors = names_only

    def close(self) -> None:
        """Release metadata and tensors. Values and `TensorInfo`s in use remain valid."""
        self._metadata, self._tensors = None, {}

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class _Part:
    path: Path
    version: int
    metadata: Metadata
    tensors: dict[str, TensorInfo]


def _zeros(n: int) -> NDArray[np.uint8]:
    return np.broadcast_to(np.uint8(0), n)


def _key_value(key: str, value: bytes) -> bytes:
    name = key.encode("utf-8", "surrogateescape")
    return _LENGTH.pack(len(name)) + name + value


def _read_part(path: Path, use_mmap: bool) -> _Part:
    cursor = Cursor(path, _map(path, use_mmap))
    version = _read_version(cursor)
    n_tensors = cursor.count("tensors", _MIN_TENSOR_INFO)
    n_kv = cursor.count("key-values", _MIN_KEY_VALUE)
    metadata = read_metadata(cursor, n_kv)
    tensors = _read_tensors(cursor, n_tensors, metadata)
    release_pages(cursor.data, 0, cursor.pos)  # a vocabulary takes some MiB
    return _Part(path, version, metadata, tensors)


def _map(path: Path, use_mmap: bool) -> mmap.mmap:
    try:
        status = path.stat()
        # Check before opening: opening a pipe waits for its writer.
        if stat.S_ISREG(status.st_mode) and status.st_size > 0:
            with path.open("rb") as file:
                if not use_mmap:
                    _check_memory(path, status.st_size)
                    return _read_all(file, status.st_size)
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        if getattr(error, "errno", None) == errno.ENOMEM:
            raise AllocError(
                f"{path}: {status.st_size / 2**20:.0f} MiB cannot be mapped: the address space "
                "is too small; raise this process's limit (ulimit -v), or close other models"
            ) from error
        reason = getattr(error, "strerror", None) or error
        raise GGUFError(f"{path}: {reason}; check the path and its permissions") from error
    if stat.S_ISREG(status.st_mode):
        raise GGUFError(f"{path}: file is empty; download it again")
    kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
    raise GGUFError(f"{path}: is {kind}; use the path of a .gguf file")


def _check_memory(path: Path, size: int) -> None:
    free = host.memory()[0]
    if size > free:
        raise AllocError(
            f"{path}: {size / 2**20:.0f} MiB cannot be read into memory, of which "
            f"{free / 2**20:.0f} MiB are available; map the file instead (omit --no-mmap, "
            "use_mmap=False)"
        )


def _read_all(file: BinaryIO, size: int) -> mmap.mmap:
    """Read a file into memory that begins at a page, like a mapping."""
    area = mmap.mmap(-1, size)
    n = file.readinto(area)  # type: ignore[attr-defined]
    if n != size:
        raise OSError(None, f"only {n} of {size} bytes can be read")
    return area


def _read_version(cursor: Cursor) -> int:
    head = cursor.data[: min(cursor.size, 64)]
    if head[:4] != b"GGUF":
        raise cursor.error(f"not a GGUF file: it starts with {head[:4]!r}, {_foreign(head)}")
    cursor.skip(4, "the magic")
    version = cursor.u32("the version")
    if version != 0 and version & 0xFFFF == 0:
        raise cursor.error("big-endian GGUF file; convert it with gguf-py's gguf-convert-endian")
    if version == 1:
        raise cursor.error("GGUF version 1 is not supported; convert the original model again")
    if version not in (2, 3):
        raise cursor.error(f"unknown GGUF version {version}; known: 2, 3; update llama-py")
    return version


def _foreign(head: bytes) -> str:
    if head[8:10] == b'{"':  # after the length of this JSON, which may begin with any byte
        return f"it looks like safetensors; {_CONVERT}"
    for magic, what in _FOREIGN:
        if head.startswith(magic):
            return f"it looks like {what}"
    return "a model starts with b'GGUF'; use the path of a .gguf file"


def _read_tensors(cursor: Cursor, n_tensors: int, metadata: Metadata) -> dict[str, TensorInfo]:
    """Read tensor infos and their offsets in the data section, which follows the last info."""
    alignment = _alignment(cursor, metadata)
    infos: dict[str, tuple[tuple[int, ...], GGMLType | Form, int]] = {}
    for i in range(n_tensors):
        name = cursor.identifier(f"the name of tensor {i}", _MAX_NAME_BYTES)
        if name in infos:
            raise cursor.error(f"tensor {quote_text(name)} occurs twice; convert the model again")
        what = f"tensor {quote_text(name)}"
        ne = _read_ne(cursor, what)
        infos[name] = (ne, _read_type(cursor, what, ne), cursor.u64(f"the offset of {what}"))
    return _place(cursor, infos, alignment)


def _alignment(cursor: Cursor, metadata: Metadata) -> int:
    value = metadata.get("general.alignment", 32)
    if type(value) is not int or not 0 < value <= _MAX_ALIGNMENT or value & (value - 1):
        shown = describe(value)
        raise cursor.error(f"general.alignment must be a power of two, got {shown}; {DAMAGED}")
    return value


def _read_ne(cursor: Cursor, what: str) -> tuple[int, ...]:
    n_dims = cursor.u32(f"the number of dimensions of {what}")
    if n_dims > _MAX_DIMS:
        raise cursor.error(f"{what} has {n_dims} dimensions, more than {_MAX_DIMS}; {DAMAGED}")
    ne = tuple(int(cursor.scalar(_NE, f"ne[{i}] of {what}")) for i in range(n_dims))
    if any(n < 0 for n in ne):
        raise cursor.error(f"{what} has ne {list(ne)}, which must not be negative; {DAMAGED}")
    if math.prod(ne) > _MAX_ELEMENTS:
        raise cursor.error(f"{what} has ne {list(ne)}, more elements than 2^63 - 1; {DAMAGED}")
    return ne + (1,) * (_MAX_DIMS - n_dims)


def _read_type(cursor: Cursor, what: str, ne: tuple[int, ...]) -> GGMLType | Form:
    kind = cursor.u32(f"the type of {what}")
    if kind <= _MAX_GGML_ID and kind in TYPES:
        plain, form = TYPES[kind], None
    else:
        plain, form = _read_fork_type(cursor, what, kind)
    size = plain.block_size if form is None else max(form.size, plain.block_size)
    found = form or plain
    if ne[0] % size:
        raise cursor.error(
            f"{what} has rows of {ne[0]} elements, not a multiple of {found.name}'s block of "
            f"{size}; {DAMAGED}"
        )
    if form is not None and ne[1] % form.rows:
        raise cursor.error(
            f"{what} has {ne[1]} rows, not a multiple of {form.name}'s {form.rows}; {DAMAGED}"
        )
    return found


def _read_fork_type(cursor: Cursor, what: str, kind: int) -> tuple[GGMLType, Form | None]:
    """Return the type in memory of a number that ggml does not have, and its form in the file."""
    from llama_py.gguf.forms import FORMS  # takes 4 ms

    form = FORMS.get(kind)
    if form is not None:
        return form.plain, form
    if kind in TYPES:
        return TYPES[kind], None
    names = {t.id: t.name for t in TYPES.values()} | {f.id: f.name for f in FORMS.values()}
    known = ", ".join(f"{id} {name}" for id, name in names.items())
    raise cursor.error(f"{what} has unknown type {kind}; known: {known}; update llama-py")


def _place(
    cursor: Cursor, infos: dict[str, tuple[tuple[int, ...], GGMLType | Form, int]], alignment: int
) -> dict[str, TensorInfo]:
    whole = np.frombuffer(cursor.data, np.uint8)
    whole.flags.writeable = False
    start = _pad(cursor.pos, alignment)
    tensors: dict[str, TensorInfo] = {}
    expected = 0
    for name in sorted(infos, key=lambda name: infos[name][2]):  # tables may have another order
        ne, dtype, offset = infos[name]
        if offset != expected:
            _check_size(cursor, tensors)
            raise cursor.error(_offset_error(name, offset, expected, alignment))
        nbytes = dtype.tensor_size(ne)
        at = start + offset
        if nbytes and at + nbytes > cursor.size:
            raise cursor.error(
                f"the data of tensor {quote_text(name)} ends at byte {at + nbytes}, but the file "
                f"has {cursor.size}; {DAMAGED}"
            )
        data = whole[at : at + nbytes]
        form = None if isinstance(dtype, GGMLType) else dtype
        kind = dtype if isinstance(dtype, GGMLType) else dtype.file_type
        info = TensorInfo(name, kind, ne, at, nbytes, data, cursor.data, cursor.path)
        tensors[name] = info if form is None else UnwoundTensor(info, form)
        expected = _pad(offset + nbytes, alignment)
    return {name: tensors[name] for name in infos}


def _check_size(cursor: Cursor, tensors: dict[str, TensorInfo]) -> None:
    """Raise GGUFError if the last tensor has another size because its type's number was also one of
    ik_llama.cpp's."""
    from llama_py.gguf.forms import RETIRED

    last = next(reversed(tensors.values()), None)
    if last is not None and last.type.id in RETIRED:
        raise cursor.error(
            f"tensor {quote_text(last.name)} has type {last.type.id}, but not the size of "
            f"{last.type.name}: perhaps {RETIRED[last.type.id]}, a former type of ik_llama.cpp; "
            "quantize the original model with llama-py-gguf quantize"
        )


def _pad(n: int, alignment: int) -> int:
    return (n + alignment - 1) // alignment * alignment


def _offset_error(name: str, offset: int, expected: int, alignment: int) -> str:
    if offset % alignment:
        why = f"is not a multiple of the alignment {alignment}"
    elif offset < expected:
        why = "overlaps the tensor before it"
    else:
        why = "leaves a gap after the tensor before it"
    return (
        f"tensor {quote_text(name)} at data offset {offset} {why}, expected offset {expected}; "
        f"{DAMAGED}"
    )
