"""The name of a quantization type stands in its own files only; every backend has one for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ggml_cpu.quants import types
from ggml_opencl.kernels import quantized_types
from ggml_py.types import TYPES

ROOT = Path(__file__).parents[2]
BACKENDS = ROOT / "backends"
FOLDERS = (ROOT / "ggml_py", *(BACKENDS / name for name in ("ggml_cpu", "ggml_ref", "ggml_opencl")))
TABLE = ROOT / "ggml_py" / "types.py"
NAMES = [t.name for t in TYPES.values() if t.is_quantized]
# What activations are rounded to is told by an import. REDUCE is an op for certain types.
IMPORT = re.compile(r"\s*from ggml_cpu\.quants\.\w+ import ")
OP = ("ggml_py/ops/collective.py", "q8_0")


def places(name: str) -> Iterator[str]:
    """Lines that have the name, as `git grep -iw` finds them, in other files than its own."""
    word = re.compile(rf"\b{name}\b", re.I)
    for folder in FOLDERS:
        for path in sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".cl", ".md")):
            where = path.relative_to(ROOT).as_posix()
            if path.stem == name or path == TABLE or (where, name) == OP:
                continue
            for i, line in enumerate(path.read_text("utf-8").splitlines(), 1):
                if word.search(line) and not IMPORT.match(line):
                    yield f"{where}:{i}: {line.strip()}"


def test_names_stand_in_their_own_files() -> None:
    assert [f"{name}: {place}" for name in NAMES for place in places(name)] == []


def test_what_is_found() -> None:
    assert list(places("f16")), "a type whose name is everywhere"


def stems(folder: Path, ending: str) -> set[str]:
    return {path.stem for path in folder.glob(f"*{ending}") if not path.stem.startswith("_")}


def test_every_type_has_a_file_in_every_backend() -> None:
    cpu, ref = (stems(BACKENDS / name / "quants", ".py") for name in ("ggml_cpu", "ggml_ref"))
    assert set(NAMES) == quantized_types() == ref - {"f16", "bf16"} == cpu - {"f32", "f16", "bf16"}
    assert set(types()) == cpu
