"""Damaged checkpoints: each must be converted, or refused with one line.

python -m dev.torture.fuzz_checkpoints --count 10000 --seed 1
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from dev.record.tiny_checkpoints import read_records, write_folder
from dev.record.whole_checkpoints import PRE, WHOLE, write_whole
from ggml_py.errors import GGMLError
from llama_py.checkpoint.convert import plan
from llama_py.checkpoint.converter import ConvertOptions
from llama_py.checkpoint.output import pieces

MEDIA = {name: one for name, one in read_records().items() if name.startswith("mmproj")}
VALUES: tuple[Any, ...] = (
    None, -1, 0, 1, 2**31, 2**70, 0.5, 1e308, float("nan"), "", "x", "\ud800", [], [None], [[]], {},
    {"a": 1}, True, "full_attention", ["x"] * 3, {"content": 3}, 10**400,
)  # fmt: skip


def main() -> int:
    """Return 1 if a folder raises another error."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--count", type=int, default=1000)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    seen = Counter[str]()
    for i in range(args.count):
        with tempfile.TemporaryDirectory() as where:
            seen[try_folder(Path(where), random.Random(args.seed * 10**6 + i))] += 1
    print(*(f"{n:6} {what}" for what, n in seen.most_common()), sep="\n")
    return any(what not in ("converted", "refused") for what in seen)


def try_folder(where: Path, draw: random.Random) -> str:
    """Damage a folder and convert it; return the result in a few words."""
    name = draw.choice([*WHOLE, *MEDIA])
    folder = write_media(name, where) if name in MEDIA else write_whole(name, where)
    for _ in range(draw.choice((1, 1, 2, 5))):
        damage(folder, draw)
    try:
        chosen, tensors = plan(folder, ConvertOptions(outtype="f16", pre=PRE, mmproj=name in MEDIA))
        for piece in pieces(chosen.out.stored, tensors):
            assert len(piece) < 2**30
    except GGMLError as e:
        return "refused" if "\n" not in str(e) else f"several lines: {e!r}"
    except Exception as e:
        return f"{type(e).__name__}: {e}"[:150]
    return "converted"


def write_media(name: str, where: Path) -> Path:
    """Write a checkpoint with encoders of images or sound."""
    write_folder(where / name, *(MEDIA[name].get(k) for k in ("config", "tensors", "files")))
    return where / name


def damage(folder: Path, draw: random.Random) -> None:
    """Change a value of a JSON file, bytes of a file, or remove a file."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    if not files:
        return
    path = draw.choice(files)
    if draw.random() < 0.05:
        path.unlink()
    elif path.suffix == ".json" and draw.random() < 0.8:
        try:
            content = json.loads(path.read_text("utf-8"))
        except ValueError:
            return
        change_value(content, draw)
        path.write_text(json.dumps(content))
    else:
        data = bytearray(path.read_bytes())
        n = min(len(data), 4000)  # headers of weights are at the start
        for _ in range(draw.choice((1, 3))):
            if n:
                data[draw.randrange(n)] = draw.randrange(256)
        path.write_bytes(data[: draw.choice((len(data), draw.randrange(len(data) + 1)))])


def change_value(content: Any, draw: random.Random) -> None:
    """Replace, remove or add a value at any depth."""
    while True:
        keys = [*content] if isinstance(content, dict) else [*range(len(content))]
        if not keys:
            return
        key = draw.choice(keys)
        if isinstance(content[key], dict | list) and draw.random() < 0.7:
            content = content[key]
        elif draw.random() < 0.2:
            del content[key]
            return
        else:
            content[key] = draw.choice(VALUES)
            return


if __name__ == "__main__":
    assert read_records()
    sys.exit(main())
