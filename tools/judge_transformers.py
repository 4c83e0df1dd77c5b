#!/usr/bin/env python3
"""Tiny random models of Hugging Face transformers, converted by llama.cpp's converter and computed
here: writes the table of docs/transformers.md. Needs another Python with transformers, and
llama.cpp's source:

    python -m venv HF && HF/bin/pip install torch==2.13.0 transformers==5.23.0
    python tools/judge_transformers.py HF/bin/python LLAMA_CPP
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import llama_py
from ggml_py.errors import GGMLError
from golden.fixture import nmse
from llama_py.like import LIKE

ROOT = Path(__file__).parents[1]
PAGE, SIDE = ROOT / "docs" / "transformers.md", ROOT / "tools" / "transformers_side.py"
HEADING = "## Conformance\n"
BOUND = 1e-9
UNKNOWN = ("falcon-h1-normed", "mpt", "qwen3moe-raw")  # see the page
# What files do not say, and --like transformers therefore cannot know.
OVERRIDES = {"granitehybrid-rope": {"granitehybrid.rope.scaling.finetuned": True}}

TEXT = """
Made by `python tools/judge_transformers.py`: NMSE of F32 logits of 300 random tokens (T5: an
encoder's 300 and a decoder's 40) against transformers 5.23.0 with torch 2.13.0, of tiny random
models that llama.cpp's converter (llama-cpp-python 0.3.36) has written. **Bold**: above 1e-9.
RWKV7 is not in transformers. GraniteMoeHybrid with RoPE is loaded with the override above.

"""


def main() -> int:
    """Return 0 if all that could be converted is like transformers."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("python", help="Python that has transformers")
    p.add_argument("llama_cpp", help="folder of llama.cpp's source")
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument("-o", "--output", type=Path, metavar="DIR", help="keep the models there")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = args.output or Path(folder)
        command = [args.python, str(SIDE), args.llama_cpp, str(out), *args.names]
        subprocess.run(command, check=True)
        rows = [row(out / f"{name}.npz") for name in sorted(made_or_not(out))]
    print("\n".join(rows))
    if not args.names:
        before = PAGE.read_text(encoding="utf-8").split(HEADING)[0]
        table = ["| model | default | `--like transformers` |", "|---|---|---|", *rows, ""]
        PAGE.write_text(before + HEADING + TEXT + "\n".join(table), encoding="utf-8")
    off = [line for line in rows if "**" in line.split("|")[3]]
    return int(any(line.split("|")[1].strip() not in UNKNOWN for line in off))


def made_or_not(out: Path) -> set[str]:
    """Names of the models that were made, or have a reason why not."""
    return {path.stem for end in ("npz", "txt") for path in out.glob(f"*.{end}")}


def row(path: Path) -> str:
    """One line of the table, for a model with its logits."""
    gguf = path.with_suffix(".gguf")
    if not (gguf.exists() and path.exists()):
        return f"| {path.stem} | {path.with_suffix('.txt').read_text().strip()} | |"
    found = np.load(path)
    try:
        cells = [cell(error(gguf, like, found)) for like in LIKE]
    except GGMLError as e:
        cells = [f"{type(e).__name__}: {e}"[:200], ""]
    return f"| {' | '.join([path.stem, *cells])} |"


def cell(value: float) -> str:
    return f"{value:.1e}" if value <= BOUND else f"**{value:.1e}**"


def error(path: Path, like: str, found: Mapping[str, Any]) -> float:
    """NMSE of a model's logits against those of transformers."""
    overrides = OVERRIDES.get(path.stem, {}) if like != LIKE[0] else {}
    model = llama_py.load(path, like=like, kv_overrides=overrides)
    ids, expected = found["ids"].tolist(), found["logits"]
    ctx = model.context(512, n_ubatch=512, type_k="f32", type_v="f32", flash_attn="off")
    if model.has_encoder:
        ctx.encode(ids)
    return nmse(expected, ctx.decode(ids[: len(expected)], logits="all"))


if __name__ == "__main__":
    sys.exit(main())
