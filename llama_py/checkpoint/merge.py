"""Experts that a checkpoint stores one by one, or with two matrices in one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays, stack


class ExpertMerger:
    """Collects the matrices of a layer's experts, and joins them when it has all.

    n_experts  experts of a layer
    parts      names of an expert's matrices, in the order of the joined tensors
    module     name of the list of experts
    """

    def __init__(self, n_experts: int, parts: Sequence[str], module: str = "experts") -> None:
        self.n_experts, self.parts = n_experts, parts
        self._pattern = re.compile(rf"(.*\b{module})\.(\d+)\.(\w+)\.weight")
        self._waiting: dict[str, dict[tuple[int, str], LazyArray]] = {}

    def merge(self, name: str, array: LazyArray) -> NamedArrays | None:
        """Return None for a tensor of no expert; else an iterator, empty until the last matrix of
        the layer: `PATH.experts.PART.weight`, [n_experts, n_out, n_in]."""
        match = self._pattern.fullmatch(name)
        if match is None:
            return None
        if self.n_experts <= 0:
            raise ModelError(
                f"config.json lacks the number of experts, but the tensor {name[:100]!r} belongs "
                "to one; download the folder again"
            )
        path, number, part = match[1], int(match[2]), match[3]
        waiting = self._waiting.setdefault(path, {})
        waiting[number, part] = array
        if len(waiting) < self.n_experts * len(self.parts):
            return iter(())
        del self._waiting[path]
        return self._join(path, waiting)

    def _join(self, path: str, found: dict[tuple[int, str], LazyArray]) -> NamedArrays:
        for part in self.parts:
            missing = next((i for i in range(self.n_experts) if (i, part) not in found), None)
            if missing is not None:
                raise ModelError(
                    f"{path}.{missing}.{part}.weight is missing in the checkpoint; download all "
                    "files of weights"
                )
            each = [found[i, part] for i in range(self.n_experts)]
            yield f"{path}.{part}.weight", stack(each)

    def check_complete(self, folder: Path) -> None:
        """Raise ModelError if matrices of a layer are missing."""
        for path, found in self._waiting.items():
            wanted = self.n_experts * len(self.parts)
            raise ModelError(
                f"{folder}: {path} has {len(found)} of {wanted} matrices of experts; download all "
                "files of weights"
            )


def split_experts(name: str, array: LazyArray) -> NamedArrays:
    """Yield a tensor for each expert, the inverse of `ExpertMerger`; other tensors unchanged."""
    match = re.fullmatch(r"(.*\bexperts)\.(\w+\.weight)", name)
    if match is None or array.ndim != 3:
        yield name, array
        return
    for i in range(array.shape[0]):
        yield f"{match[1]}.{i}.{match[2]}", array.rows(i, i + 1).reshape(*array.shape[1:])


class PartGatherer:
    """Collects tensors of groups until a group has all its parts."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[int, LazyArray]] = {}

    def add(self, group: str, part: int, array: LazyArray, n: int) -> list[LazyArray] | None:
        """Return the parts 0 .. n - 1 of a complete group, else None."""
        found = self._waiting.setdefault(group, {})
        found[part] = array
        if len(found) < n:
            return None
        del self._waiting[group]
        if missing := {*range(n)} - found.keys():
            raise ModelError(
                f"{group}: part {min(missing)} of {n} is missing in the checkpoint; download all "
                "files of weights"
            )
        return [found[i] for i in range(n)]

    def check_complete(self, folder: Path) -> None:
        """Raise ModelError if parts of a group are missing."""
        for group, found in self._waiting.items():
            raise ModelError(
                f"{folder}: {group} has only {len(found)} parts; download all files of weights"
            )


def split_gate_up(name: str, array: LazyArray) -> NamedArrays:
    """Yield gate and up matrices of experts that are stored as one, [n_experts, 2 * n_ff, n]."""
    if array.ndim < 3 or array.shape[-2] % 2:
        raise ModelError(f"{name} must be [n_experts, 2 * n_ff, n_embd], got {list(array.shape)}")
    n_ff = array.shape[-2] // 2
    base = name.removesuffix(".weight").removesuffix("gate_up_proj")
    gate, up = array.split([n_ff, n_ff], array.ndim - 2)
    yield f"{base}gate_proj.weight", gate
    yield f"{base}up_proj.weight", up
