"""Saving what a context remembers, whole or by sequence, and reading it back (llama_state_*)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from ggml_py.errors import ContextError
from llama_py.loaded import Loaded
from llama_py.memory import MemoryGroup
from llama_py.memory.io import StateReader, StateWriter

MAGIC = b"llpy"
VERSION = 1
_HEAD = struct.Struct("<4sII")  # magic, version, crc32 of the rest


class Remembering(Protocol):
    """What a state is of: `llama_py.Context`."""

    memory: MemoryGroup

    @property
    def model(self) -> Loaded: ...


def save(
    ctx: Remembering, seq_id: int = -1, *, partial: bool = False, tokens: Sequence[int] = ()
) -> bytes:
    """The state of one sequence, or of all (-1).

    partial  without what `seq_rm` can always take back (the attention part): a checkpoint to return
             to while later positions are still there
    tokens   remembered along with it: what the sequence was made from
    """
    io = StateWriter()
    io.text(_what(ctx, seq_id, partial))
    io.array(np.asarray(tokens, np.int32))
    ctx.memory.state_write(io, seq_id, partial)
    body = io.bytes()
    return _HEAD.pack(MAGIC, VERSION, zlib.crc32(body)) + body


def load(
    ctx: Remembering, data: bytes | memoryview, seq_id: int = -1, *, partial: bool = False
) -> list[int]:
    """Put a saved state in place of what the context has; returns the tokens saved with it.

    A sequence may be read into another sequence, or context, than it was saved from. Raises
    ContextError, without a change, for data that is broken or from another model or layout; if the
    context is too small for it, the sequence is empty afterwards.
    """
    io = StateReader(_body(data))
    found, wanted = io.text(), _what(ctx, seq_id, partial)
    if found != wanted:
        raise ContextError(f"the state is of {found!r}; this context needs {wanted!r}")
    tokens = [int(t) for t in io.array(np.int32)]
    ctx.memory.state_read(io, seq_id, partial)
    io.end()
    return tokens


def save_file(
    ctx: Remembering, path: str | Path, seq_id: int = -1, *, tokens: Sequence[int] = ()
) -> int:
    """`save` to a file, which is replaced only when all is written; returns its size in bytes."""
    path = Path(path)
    data = save(ctx, seq_id, tokens=tokens)
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)
    return len(data)


def load_file(ctx: Remembering, path: str | Path, seq_id: int = -1) -> list[int]:
    """`load` from a file; the ContextError names it."""
    try:
        return load(ctx, Path(path).read_bytes(), seq_id)
    except ContextError as e:
        raise ContextError(f"{path}: {e}") from e


def _what(ctx: Remembering, seq_id: int, partial: bool) -> str:
    """What must be the same when a state is read back."""
    scope = "all sequences" if seq_id < 0 else "one sequence"
    kind = "checkpoint" if partial else "state"
    return f"{ctx.model.arch} {kind} of {scope}: {ctx.memory.layout()}"


def _body(data: bytes | memoryview) -> memoryview:
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise ContextError(f"not a saved state: {len(view)} bytes")
    magic, version, crc = _HEAD.unpack_from(view)
    body = view[_HEAD.size :]
    if magic != MAGIC:
        raise ContextError(f"not a saved state: it starts with {magic!r}, not {MAGIC!r}")
    if version != VERSION:
        raise ContextError(f"the state has version {version}; this program reads {VERSION}")
    if zlib.crc32(body) != crc:
        raise ContextError("the state is damaged or cut short: its checksum does not match")
    return body
