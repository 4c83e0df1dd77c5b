"""Saving and loading a context's memory, whole or by sequence (llama_state_*)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ggml_py._moved import former_names
from ggml_py.errors import ContextError
from llama_py.gguf.metadata import printable
from llama_py.loading.model import LoadedModel
from llama_py.memory import MemoryGroup
from llama_py.memory.io import StateReader, StateWriter
from llama_py.support.whole_file import replace_file

MAGIC = b"llpy"
VERSION = 2
_HEAD = struct.Struct("<4sII")  # magic, version, crc32 of the rest


class Restorable(Protocol):
    """Interface of an object with a state, `llama_py.Context`."""

    memory: MemoryGroup

    @property
    def model(self) -> LoadedModel: ...


def save(
    ctx: Restorable, seq_id: int = -1, *, partial: bool = False, tokens: Sequence[int] = ()
) -> bytes:
    """Return the state of one sequence, or of all (-1).

    partial  omit parts that `seq_rm` can truncate (attention): a checkpoint to return to while
             later positions are still in memory
    tokens   the sequence's tokens, saved with its state
    """
    scope = "all sequences" if seq_id < 0 else "one sequence"
    io = begin(ctx, f"{'checkpoint' if partial else 'state'} of {scope}")
    io.array(np.asarray(tokens, np.int32))
    ctx.memory.state_write(io, seq_id, partial)
    return b"".join(seal(io))


def load(
    ctx: Restorable, data: bytes | memoryview, seq_id: int = -1, *, partial: bool = False
) -> list[int]:
    """Replace the context's memory by a saved state; return its saved tokens.

    A sequence may be loaded into another sequence or context. Raises ContextError, without a
    change, for data that is broken or from another model or layout; if the context is too
    small, the sequence is empty afterwards.
    """
    scope = "all sequences" if seq_id < 0 else "one sequence"
    io = open_state(ctx, data, f"{'checkpoint' if partial else 'state'} of {scope}")
    tokens = [int(t) for t in io.array(np.int32)]
    ctx.memory.state_read(io, seq_id, partial)
    io.end()
    return tokens


def save_file(
    ctx: Restorable, path: str | Path, seq_id: int = -1, *, tokens: Sequence[int] = ()
) -> int:
    """Save to a file, replaced only after all data is on disk; return its size in bytes."""
    return replace_file(path, [save(ctx, seq_id, tokens=tokens)])


def load_file(ctx: Restorable, path: str | Path, seq_id: int = -1) -> list[int]:
    """Load from a file; a ContextError names the file."""
    with naming(path):
        return load(ctx, Path(path).read_bytes(), seq_id)


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Prefix any ContextError with the path of its file."""
    try:
        yield
    except ContextError as e:
        raise ContextError(f"{path}: {e}") from e


def begin(ctx: Restorable, what: str) -> StateWriter:
    """Start data for `open_state`: its type, model and layout."""
    io = StateWriter()
    for text in (what, ctx.model.fingerprint, ctx.model.arch, ctx.memory.layout()):
        io.text(text)
    return io


def seal(io: StateWriter) -> list[bytes | memoryview]:
    """Return all parts, preceded by a checksum."""
    crc = 0
    for part in io.parts:
        crc = zlib.crc32(part, crc)
    return [_HEAD.pack(MAGIC, VERSION, crc), *io.parts]


def open_state(ctx: Restorable, data: bytes | memoryview, what: str) -> StateReader:
    """Return a reader of data of `seal`.

    Raises ContextError if the data is damaged, or of another type, model or layout.
    """
    io = StateReader(_body(data))
    found, print_, arch, layout = (io.text() for _ in range(4))
    model = ctx.model
    if found != what:
        raise ContextError(f"file contains a {printable(found)}, expected a {what}")
    if print_ != model.fingerprint:
        other = f" ({printable(arch)}, not {model.arch})" if arch != model.arch else ""
        raise ContextError(
            f"{what} belongs to another model{other}: its fingerprint is {printable(print_)}, "
            f"this model's is {model.fingerprint}; use the model that saved it"
        )
    if layout != ctx.memory.layout():
        raise ContextError(
            f"{what} has layout {layout!r}, but this context needs {ctx.memory.layout()!r}; use "
            "the cache types, flash attention and variants of the context that saved it"
        )
    return io


def _body(data: bytes | memoryview) -> memoryview:
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise ContextError(f"not a saved state: it has only {len(view)} bytes")
    magic, version, crc = _HEAD.unpack_from(view)
    body = view[_HEAD.size :]
    if magic != MAGIC:
        raise ContextError(f"not a saved state: it starts with {magic!r}, expected {MAGIC!r}")
    if version != VERSION:
        raise ContextError(
            f"state version must be {VERSION}, got {version}; save it again with this version of "
            "llama-py"
        )
    if zlib.crc32(body) != crc:
        raise ContextError(
            "the state is damaged or truncated: its checksum does not match; save it again"
        )
    return body


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, Remembering="Restorable")
