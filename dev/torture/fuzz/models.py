"""Tiny models as GGUF images for fuzzing, and the metadata keys that loading reads."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from dev import tiny_models as tiny
from dev.tiny_models import Tiny
from dev.tiny_models._invent import Invented, shapes, tensors
from dev.torture.fuzz import numbers
from dev.torture.fuzz.image import Image, pairs_of, tensors_of
from dev.torture.fuzz.numbers import shown
from ggml_py.graph import Graph
from llama_py import load
from llama_py.models import architecture
from llama_py.weights import Weights

LARGEST = 4 << 20  # maximum bytes of a model before fuzzing changes it
ARCHS = "LLAMA_PY_FUZZ_ARCHS"  # environment variable: architectures, separated by commas
MOST = 48 << 20  # maximum bytes of generated weights


class _Asked(dict[str, Any]):
    """Metadata that records the requested keys."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.keys_asked: dict[str, None] = {}

    def get(self, key: str, default: Any = None) -> Any:
        self.keys_asked[key] = None
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.keys_asked[str(key)] = None
        return super().__contains__(key)


@dataclass
class Start:
    """Tiny model that fuzz cases change."""

    arch: str
    variant: str
    tiny: Tiny

    def write(self, folder: Path) -> Path:
        return tiny.write(self.arch, self.variant, folder)

    @cached_property
    def nbytes(self) -> int:
        """Size of the weights in bytes."""
        return sum(4 * math.prod(ne) for ne in shapes(self.arch, self.tiny).values())

    @cached_property
    def image(self) -> Image:
        arrays = tensors(self.arch, self.tiny)
        whole = {name for name, a in arrays.items() if a.dtype == np.int32}
        data = {n: a.astype("<i4" if n in whole else "<f4").tobytes() for n, a in arrays.items()}
        sizes = {name: a.shape[::-1] for name, a in arrays.items()}
        metadata = tiny.metadata(self.arch, self.tiny)
        return Image(pairs_of(metadata), tensors_of(sizes, data, whole))

    @cached_property
    def keys(self) -> list[str]:
        """Metadata keys that the hyperparameters read, including keys absent from the file."""
        asked = _Asked(tiny.metadata(self.arch, self.tiny))
        architecture(self.arch).HParams(asked, self.arch)
        return list(asked.keys_asked)

    def resized(self, rng: Random) -> tuple[str, Image]:
        """Return the model with random other sizes, and the tensors that these sizes require."""
        keys, told = dict(self.tiny.keys), []
        names = [
            k.removeprefix(f"{self.arch}.") for k in self.keys if k.startswith(f"{self.arch}.")
        ]
        for key in rng.sample(names, rng.choice((1, 1, 2, 3))):
            old = keys.get(key, tiny.COMMON.get(key))
            keys[key] = _other(rng, old)
            told.append(f"{key} = {shown(keys[key])}")
        changed = replace(self.tiny, keys=keys)
        return f"resized {', '.join(told)}", self._image(rng, changed)

    def _image(self, rng: Random, changed: Tiny) -> Image:
        metadata = tiny.metadata(self.arch, changed)
        try:
            found = shapes(self.arch, changed)
        except Exception:  # reading the file raises the same error
            return replace(self.image.copy(), pairs=pairs_of(metadata))
        total = sum(4 * math.prod(ne) for ne in found.values())
        if total > MOST:
            return replace(self.image.copy(), pairs=pairs_of(metadata))
        pool = np.random.default_rng(rng.getrandbits(32)).standard_normal(1 << 16, np.float32) / 8
        raw = {}
        for name, ne in found.items():
            values = np.resize(pool, math.prod(ne))
            raw[name] = (values + 1 if "norm" in name else values).tobytes()
        whole = {n for n in found if any(fnmatchcase(n, p) for p in changed.table)}
        small = np.arange(6, dtype="<i4")
        raw |= {name: np.resize(small, math.prod(found[name])).tobytes() for name in whole}
        return Image(pairs_of(metadata), tensors_of(found, raw, whole))


def _other(rng: Random, old: Any) -> Any:
    """Return another value of the same type, possibly valid."""
    if isinstance(old, bool):
        return not old
    if isinstance(old, list | tuple):
        return [_other(rng, v) if rng.random() < 0.4 else v for v in old]
    if isinstance(old, float):
        return max(min(numbers.floating(rng, old)[1], 3e38), -3e38)
    if isinstance(old, str):
        return rng.choice(numbers.TEXTS[10:16])
    if isinstance(old, int):
        changed = (0, 1, 2, 3, old + 1, old - 1, old * 2, old // 2, old * 3, old * 32, 17, 50)
        return min(max(rng.choice(changed), 0), 2**64 - 1)
    return rng.choice((0, 1, 2, 3, 16, 32, 64, 1.0, 0.5, True, False, 1e-6, 1000))


def starts() -> Iterator[Start]:
    """Yield all small tiny models; the environment variable ARCHS can limit architectures."""
    only = os.environ.get(ARCHS, "").split(",")
    for arch, variant in tiny.every():
        if only != [""] and arch not in only:
            continue
        start = Start(arch, variant, tiny.find(arch, variant))
        if start.nbytes <= LARGEST:
            yield start


def memories(folder: Path) -> list[Path]:
    """Write tiny models, the smallest of each type of memory, and return their files."""
    return [start.write(folder) for start in _of_each_memory()]


@cache
def _of_each_memory() -> list[Start]:
    found: dict[object, Start] = {}
    alone = (s for s in starts() if s.tiny.drafts_for is None)
    for start in sorted(alone, key=lambda s: s.nbytes):
        kind = architecture(start.arch)
        hp = kind.HParams(tiny.metadata(start.arch, start.tiny), start.arch)
        made = kind(hp, Weights(Invented(start.tiny), start.arch))
        parts = (k for il in hp.kept_layers for k in made.memory_spec(il))
        kinds = {(type(k), getattr(k, "window", None) is None) for k in parts}
        found.setdefault((frozenset(kinds), kind.gtypes), start)
    return list(found.values())


def graphs(folder: Path) -> list[Graph]:
    """Return graphs of a prompt for some tiny models."""
    found: list[Graph] = []
    for path in memories(folder):
        model = load(path, device="null")
        with model, model.context(n_ctx=32) as ctx:
            if model.has_encoder:
                ctx.encode([1, 2, 3])
            ctx.on_graph = lambda res, _: found.append(res.graph)
            ctx.decode([1, 2, 3])
    return found
