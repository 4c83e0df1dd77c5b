"""Files of importance matrices, llama.cpp's: GGUF with `*.in_sum2` and `*.counts`, and the older
form, .dat, with means times the number of chunks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ggml_py.errors import GGUFError
from ggml_py.types import F32
from llama_py.gguf.file import GGUFFile, TensorInfo
from llama_py.gguf.write import content, encode
from llama_py.support.whole_file import replace_file

Floats = npt.NDArray[np.float32]
Counts = npt.NDArray[np.int64]

SUMS, COUNTS = ".in_sum2", ".counts"
DATASETS, N_CHUNKS, CHUNK_SIZE = (
    f"imatrix.{key}" for key in ("datasets", "chunk_count", "chunk_size")
)


@dataclass
class ImatrixEntry:
    """The importance of one weight tensor's inputs.

    sums    sums of squares of its inputs, for all its matrices [n_matrices * n_inputs]
    counts  number of tokens: of each matrix, or one number for all
    """

    sums: Floats
    counts: Counts


@dataclass
class Imatrix:
    """Content of a file. old: sums are means times the number of calls, stored in `counts`."""

    path: str
    entries: dict[str, ImatrixEntry]
    datasets: list[str] = field(default_factory=list)
    n_chunks: int = 0
    chunk_size: int = 0
    old: bool = False

    def weights(self, name: str) -> Floats | None:
        """Mean squares of a tensor's inputs, 1 for unseen experts; None for an unknown tensor."""
        entry = self.entries.get(name)
        if entry is None:
            return None
        counts = entry.counts.astype(np.float32)
        if self.old:
            return entry.sums / counts[0] if counts[0] > 0 else entry.sums
        sums = entry.sums.reshape(len(counts), -1)
        seen = counts[:, None] > 0
        means = np.where(seen, sums / np.where(seen, counts[:, None], np.float32(1)), 1)
        found: Floats = means.astype(np.float32).ravel()
        return found

    def select_entries(self, include: Sequence[str], exclude: Sequence[str]) -> Imatrix:
        """Return the entries with names that contain any of `include`, but not of `exclude`."""
        kept = {
            name: entry
            for name, entry in self.entries.items()
            if not any(part in name for part in exclude)
            and (not include or any(part in name for part in include))
        }
        return Imatrix(self.path, kept, self.datasets, self.n_chunks, self.chunk_size, self.old)


def read_imatrix(path: str | Path) -> Imatrix:
    """Read either format; GGUFError for other files, or values that are not finite."""
    with Path(path).open("rb") as file:
        is_gguf = file.read(4) == b"GGUF"
    found = _read_gguf(Path(path)) if is_gguf else _read_old(Path(path))
    for name, entry in found.entries.items():
        if not np.isfinite(entry.sums).all():
            raise GGUFError(f"{path}: {name} has values that are not finite; create the file again")
    return found


def _read_gguf(path: Path) -> Imatrix:
    with GGUFFile.open(path) as file:
        missing = [key for key in (DATASETS, N_CHUNKS, CHUNK_SIZE) if key not in file.metadata]
        if missing:
            raise GGUFError(
                f"{path}: not an importance matrix: {missing[0]} is missing; create one with "
                "llama-py-imatrix"
            )
        entries = {}
        for name, sums in file.tensors.items():
            if not name.endswith(SUMS):
                continue
            base = name.removesuffix(SUMS)
            counts = file.tensors.get(base + COUNTS)
            if counts is None or {sums.type, counts.type} != {F32}:
                raise GGUFError(
                    f"{path}: {base} needs sums and counts of type f32; create the file again"
                )
            values, number = (t.data.view(np.float32).copy() for t in (sums, counts))
            if len(values) % len(number):
                raise GGUFError(
                    f"{path}: {base} has {len(values)} sums for {len(number)} matrices; create "
                    "the file again"
                )
            entries[base] = ImatrixEntry(values, np.rint(number).astype(np.int64))
        if not entries:
            raise GGUFError(
                f"{path}: importance matrix has no entries; create it again from more text"
            )
        datasets = file.metadata[DATASETS]
        n_chunks, size = (int(str(file.metadata[key])) for key in (N_CHUNKS, CHUNK_SIZE))
        texts = [str(d) for d in datasets] if isinstance(datasets, list) else []
        return Imatrix(str(path), entries, texts, n_chunks, size)


class _Cursor:
    def __init__(self, path: Path) -> None:
        self.path, self.data, self.at = path, path.read_bytes(), 0

    def number(self) -> int:
        return int(struct.unpack("<i", self.take(4))[0])

    def take(self, n: int) -> bytes:
        if not 0 <= n <= len(self.data) - self.at:
            raise GGUFError(
                f"{self.path}: not an importance matrix, or truncated: at byte {self.at} {n} more "
                f"bytes are needed, but the file has {len(self.data)}"
            )
        self.at += n
        return self.data[self.at - n : self.at]

    @property
    def is_done(self) -> bool:
        return self.at >= len(self.data)


def _read_old(path: Path) -> Imatrix:
    cursor = _Cursor(path)
    n = cursor.number()
    if n < 1:
        raise GGUFError(f"{path}: not an importance matrix: it has {n} entries")
    entries = {}
    for _ in range(n):
        name = cursor.take(cursor.number()).decode("utf-8", "surrogateescape")
        calls, size = cursor.number(), cursor.number()
        values = np.frombuffer(cursor.take(4 * size), "<f4").copy()
        entries[name] = ImatrixEntry(values, np.array([calls], np.int64))
    found = Imatrix(str(path), entries, old=True)
    if not cursor.is_done:
        found.n_chunks = cursor.number()
    if not cursor.is_done:
        text = cursor.take(cursor.number()).decode("utf-8", "surrogateescape")
        found.datasets = [text] if text else []
    return found


def write_imatrix(path: str | Path, imatrix: Imatrix) -> None:
    """Write a GGUF file with all entries, atomically."""
    stored = {
        "general.type": encode("str", "imatrix"),
        DATASETS: encode("arr[str]", imatrix.datasets),
        N_CHUNKS: encode("u32", imatrix.n_chunks),
        CHUNK_SIZE: encode("u32", imatrix.chunk_size),
    }
    replace_file(path, content(stored, _tensors(imatrix.entries)))


def _tensors(entries: Mapping[str, ImatrixEntry]) -> Iterator[TensorInfo]:
    for name in sorted(entries):
        entry = entries[name]
        n = len(entry.counts)
        counts = entry.counts.astype(np.float32)
        yield _info(name + SUMS, entry.sums, (len(entry.sums) // n, n, 1, 1))
        yield _info(name + COUNTS, counts, (1, n, 1, 1))


def _info(name: str, values: Floats, ne: tuple[int, ...]) -> TensorInfo:
    data = np.ascontiguousarray(values, np.float32).view(np.uint8)
    return TensorInfo(name, F32, ne, 0, data.nbytes, data)


def write_old(path: str | Path, imatrix: Imatrix) -> None:
    """Write the older format, without empty entries, atomically."""
    replace_file(path, _old_parts(imatrix))


def _old_parts(imatrix: Imatrix) -> Iterable[bytes]:
    seen = {name: e for name, e in sorted(imatrix.entries.items()) if e.counts.any()}
    yield struct.pack("<i", len(seen))
    for name, entry in seen.items():
        raw = name.encode("utf-8", "surrogateescape")
        calls = -(-int(entry.counts.max()) // max(1, imatrix.chunk_size))
        counts = entry.counts.astype(np.float32)[:, None]
        sums = entry.sums.reshape(len(counts), -1)
        means = np.where(counts > 0, sums / np.maximum(counts, 1), np.float32(1))
        values = (means * np.float32(calls)).astype("<f4").ravel()
        yield struct.pack("<i", len(raw)) + raw + struct.pack("<ii", calls, len(values))
        yield values.tobytes()
    dataset = (imatrix.datasets or [""])[-1].encode("utf-8", "surrogateescape")
    yield struct.pack("<ii", imatrix.n_chunks, len(dataset)) + dataset
