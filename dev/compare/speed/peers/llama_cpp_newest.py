"""llama.cpp b11739: the library of the wheel llama-cpp-py-sync (dev/record/newest)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dev.compare.speed.peers import llama_cpp
from dev.record.newest import binding

OPTION = "--newest", {"metavar": "DIR", "help": "has the wheel llama-cpp-py-sync, and its glibc"}
TYPES = {"f32": 0, "f16": 1, "q8_0": 8}  # numbers of ggml_type


def started(folder: str) -> Iterator[tuple[str, tuple[str, ...], dict[str, Any]]]:
    command = tuple(binding.python_command(Path(folder).resolve()))
    for name, repack in (("llama.cpp b11739 repacked", True), ("llama.cpp b11739 plain", False)):
        yield name, command, {"repack": repack, "folder": folder}


class Loaded(llama_cpp.Loaded):
    name = "llama.cpp b11739"

    def __init__(
        self, model: str, threads: int, repack: bool, folder: str, embeds: bool = False
    ) -> None:
        sys.path.append(folder)
        binding.install()
        super().__init__(model, threads, repack, embeds)

    def type_id(self, name: str) -> int:
        return TYPES[name]
