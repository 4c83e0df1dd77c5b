"""Tensors of open files: stored bytes, or bytes that are computed on reading."""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ggml_py.types import GGMLType
from llama_py.gguf.pages import release_pages

if TYPE_CHECKING:
    from llama_py.gguf.forms import Form

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class TensorInfo:
    """One tensor of the file.

    `ne` is in ggml's order ([n_embd, n_vocab]: ne[0] fastest), padded with 1 to four dimensions.
    `offset` is in bytes from the start of the file or of the tensor's shard. `data` is a read-only
    uint8 view, [nbytes], of the mapped file, which remains mapped until the view is deleted.
    `mapped` is that file's mapping and `path` its name, or None for bytes from another
    source.
    """

    name: str
    type: GGMLType
    ne: tuple[int, ...]
    offset: int
    nbytes: int
    data: Bytes = field(repr=False)
    mapped: mmap.mmap | None = field(default=None, repr=False, compare=False)
    path: Path | None = field(default=None, repr=False, compare=False)

    @property
    def dims(self) -> tuple[int, ...]:
        """`ne` without the sizes of 1 at its end, as a file states it."""
        return self.ne[: max((i + 1 for i, n in enumerate(self.ne) if n != 1), default=1)]

    def rename(self, name: str) -> TensorInfo:
        """Return the tensor with another name."""
        return replace(self, name=name)

    def as_stored(self) -> TensorInfo:
        """Return the tensor with the type and the bytes of the file."""
        return self

    def let_go(self) -> None:
        """Release memory of the mapped bytes after a device has copied them."""
        if self.mapped is not None:
            release_pages(self.mapped, self.offset, self.offset + self.nbytes)


class ComputedTensor(TensorInfo):
    """A tensor without stored bytes. Reading `data` computes them; they need memory while in
    use."""

    __slots__ = ("_compute", "_last")
    _compute: Callable[[], Bytes]
    _last: Callable[[], Bytes | None]

    def __init__(
        self,
        name: str,
        type: GGMLType,
        ne: tuple[int, ...],
        nbytes: int,
        compute: Callable[[], Bytes],
    ) -> None:
        """compute: returns the bytes, [nbytes];  ne: sizes, at most four"""
        for attribute, value in (
            ("name", name), ("type", type), ("ne", (*ne, 1, 1, 1)[:4]), ("offset", 0),
            ("nbytes", nbytes), ("mapped", None), ("path", None),
            ("_compute", compute), ("_last", lambda: None),
        ):  # fmt: skip
            object.__setattr__(self, attribute, value)

    def rename(self, name: str) -> TensorInfo:
        return ComputedTensor(name, self.type, self.ne, self.nbytes, self._compute)

    @property
    def data(self) -> Bytes:
        """Computed bytes, read-only, [nbytes]."""
        found = self._last()
        if found is None:
            found = self._compute()
            found.flags.writeable = False
            object.__setattr__(self, "_last", weakref.ref(found))
        return found


class UnwoundTensor(ComputedTensor):
    """A tensor with another form in its file (see forms.py); `type` and `nbytes` are of memory."""

    __slots__ = ("_stored", "form")
    _stored: TensorInfo
    form: Form

    def __init__(self, stored: TensorInfo, form: Form) -> None:
        size = form.plain.tensor_size(stored.ne)
        super().__init__(stored.name, form.plain, stored.ne, size, partial(_unwind, stored, form))
        object.__setattr__(self, "_stored", stored)
        object.__setattr__(self, "form", form)

    def rename(self, name: str) -> TensorInfo:
        return UnwoundTensor(self._stored.rename(name), self.form)

    def as_stored(self) -> TensorInfo:
        return self._stored

    def let_go(self) -> None:
        self._stored.let_go()


def _unwind(stored: TensorInfo, form: Form) -> Bytes:
    return form.unwind(stored.data, stored.ne[0])
