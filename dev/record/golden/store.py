"""Read and write recordings: `ARCH/VARIANT.json` (the origin), `.nodes.xz`, `.npz`."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dev.record.golden.runs import Facts, Result
from dev.tiny_models import find
from ggml_py.inspection.dump import Record

DATA = Path(__file__).parents[3] / "tests" / "data" / "golden"


@dataclass(frozen=True)
class About:
    """Origin of a recording.

    gguf    sha256 of the tiny model's file
    recipe  the settings of the tiny model
    runs    the names of its runs (golden.runs.RUNS)
    """

    gguf: str
    recipe: dict[str, Any]
    facts: Facts
    runs: list[str]


def recorded() -> list[tuple[str, str]]:
    """Return (architecture, variant) of each recording."""
    return sorted((p.parent.name, p.stem) for p in DATA.glob("*/*.json"))


def recipe(arch: str, variant: str) -> dict[str, Any]:
    """Return a tiny model's settings as JSON, without fields that do not affect the model."""
    said = _said(json.loads(json.dumps(asdict(find(arch, variant)))))
    for name in ("familiar", "forms"):
        said.pop(name, None)
    return said


def _said(fields: dict[str, Any]) -> dict[str, Any]:
    """Omit empty fields, so that a new field changes only recordings that use it."""
    return {key: value for key, value in fields.items() if value}


def fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def about(arch: str, variant: str) -> About:
    raw = json.loads((DATA / arch / f"{variant}.json").read_text())
    return About(raw["gguf"], _said(raw["recipe"]), Facts(**raw["facts"]), raw["runs"])


@lru_cache(4)  # large lists slow down the garbage collector
def nodes(arch: str, variant: str) -> dict[str, list[Record]]:
    """Return a recording's node lists by run."""
    packed = (DATA / arch / f"{variant}.nodes.xz").read_bytes()
    lists: dict[str, list[Record]] = json.loads(lzma.decompress(packed))
    return lists


@cache
def values(arch: str, variant: str) -> dict[str, NDArray[Any]]:
    """Return a recording's arrays by `run.name`."""
    return dict(np.load(DATA / arch / f"{variant}.npz"))


def save(arch: str, variant: str, what: About, results: Mapping[str, Result]) -> int:
    """Write the three files and return their size in bytes."""
    folder = DATA / arch
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{variant}{end}" for end in (".json", ".nodes.xz", ".npz")]
    paths[0].write_text(json.dumps(asdict(what), indent=1) + "\n")
    lists = {name: result.nodes for name, result in results.items() if result.nodes}
    text = json.dumps(lists, separators=(",", ":")).encode()
    paths[1].write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
    arrays = {
        f"{name}.{k}": a for name, result in results.items() for k, a in result.values.items()
    }
    np.savez_compressed(paths[2], **arrays)
    return sum(path.stat().st_size for path in paths)
