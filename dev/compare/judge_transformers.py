#!/usr/bin/env python3
"""Tiny random models of Hugging Face transformers, converted by llama.cpp's converter and computed
here: writes the table of docs/transformers.md. Needs another Python with transformers, and
llama.cpp's source:

    python -m venv HF
    HF/bin/pip install torch==2.13.0 transformers==5.24.0 accelerate==1.15.0 rwkv==0.8.32
    python -m dev.compare.judge_transformers HF/bin/python LLAMA_CPP
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import llama_py
from dev.record.golden.fixture import nmse
from dev.record.tiny_checkpoints import convert_plain
from ggml_py.errors import GGMLError
from llama_py.blocks.delta_net import DELTA_NET
from llama_py.gguf.file import GGUFFile
from llama_py.hparams.variants import SLOTS
from llama_py.params.like import LIKE, TRANSFORMERS
from llama_py_tools.gguf.main import main as gguf

ROOT = Path(__file__).parents[2]
PAGE, SIDE = ROOT / "docs" / "transformers.md", "dev.compare.transformers_side"
HEADING = "## Conformance\n"
BOUND = 1e-9
EXACT: dict[str, Any] = {"type_k": "f32", "type_v": "f32", "flash_attn": "off"}
UNKNOWN = ("falcon-h1-normed", "mpt", "qwen3moe-raw")  # see the page
FORMS = [form for form in DELTA_NET.names if form != SLOTS]
DELTA_NETS = ("kimi-linear", "qwen3next", "qwen35", "qwen35moe")
MOST = {"autoregressive": 20}  # the graph grows with each token of a ubatch
# Values missing in files, which --like transformers therefore cannot know.
OVERRIDES = {"granitehybrid-rope": {"granitehybrid.rope.scaling.finetuned": True}}

TEXT = """
Made by `python -m dev.compare.judge_transformers`: NMSE of F32 logits of 300 random tokens (T5: an
encoder's 300 and a decoder's 40) against transformers 5.24.0 with torch 2.13.0, of tiny random
models that llama.cpp's converter (llama-cpp-python 0.3.36) has written. **Bold**: above 1e-9.
`folder`: if `llama-py-gguf convert` makes the same file of the same folder; `ssm_a`: except the
last bits of decays. GraniteMoeHybrid with RoPE is loaded with the override above.

- RWKV7 is not in transformers: its reference is the author's package rwkv 0.8.32.
- `-fp8` models are stored in E4M3 with a scale per 128x128 values. The converter writes F32.
- `-mxfp4` models are stored in MXFP4 (`_blocks`, `_scales`). The converter keeps these values, and
  `llama-py-gguf quantize` converts them to F32 before the comparison.
- Neither llama.cpp nor llama-py loads the file of the models with an error: norms of Cohere's
  queries need 64 layers; sizes of the others follow from keys that these tiny models contradict.
- Not explained yet: afmoe, bamba, deepseek32, falcon-mamba, glm, laguna, mellum, nemotron_h.

"""
FORMS_TEXT = """
The variants of delta nets (`--form delta_net=NAME`) with `--like transformers`: NMSE of the same
logits, in one ubatch (`autoregressive`: of 20 tokens) and token by token.

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
        command = [args.python, "-m", SIDE, args.llama_cpp, str(out), *args.names]
        subprocess.run(command, check=True)
        names = sorted(made_or_not(out))
        rows = [row(out / f"{name}.npz") for name in names]
        forms = [forms_row(out / f"{name}.npz") for name in names if name in DELTA_NETS]
    print("\n".join(rows + forms))
    if not args.names:
        before = PAGE.read_text(encoding="utf-8").split(HEADING)[0]
        main = table(["folder", "default", "`--like transformers`"], rows)
        columns = [f"`{form}`{how}" for form in FORMS for how in ("", ", by token")]
        text = HEADING + TEXT + main + FORMS_TEXT + table(columns, forms)
        PAGE.write_text(before + text, encoding="utf-8")
    off = [line for line in rows + forms if "**" in "|".join(line.split("|")[3:])]
    return int(any(line.split("|")[1].strip() not in UNKNOWN for line in off))


def table(columns: Sequence[str], rows: Sequence[str]) -> str:
    """Return a table; its first column names the model."""
    head = f"| {' | '.join(['model', *columns])} |"
    return "\n".join([head, "|---" * (len(columns) + 1) + "|", *rows, ""])


def made_or_not(out: Path) -> set[str]:
    """Return the names of models that exist, or that have a reason for their absence."""
    return {path.stem for end in ("npz", "txt") for path in out.glob(f"*.{end}")}


def row(path: Path) -> str:
    """Return one line of the table, for a model with its logits."""
    gguf = path.with_suffix(".gguf")
    if not (gguf.exists() and path.exists()):
        return f"| {path.stem} | | {path.with_suffix('.txt').read_text().strip()} | |"
    found = np.load(path)
    try:
        cells = [cell(error(gguf, like, found)) for like in LIKE]
    except GGMLError as e:
        cells = [str(e).removeprefix(f"{gguf}: ").partition(",")[0][:120], ""]
    return f"| {' | '.join([path.stem, compare_folder(path.with_suffix('')), *cells])} |"


def compare_folder(folder: Path) -> str:
    """Return "equal" if a folder becomes the file of llama.cpp's converter."""
    if not folder.is_dir():
        return ""
    try:
        made = convert_plain(folder)
    except GGMLError as e:
        return str(e).removeprefix(f"{folder}: ")[:100]
    path = folder.with_name(f"{folder.name}.gguf")
    if made == path.read_bytes():
        return "equal"
    other = folder.with_name(f"{folder.name}.ours")
    other.write_bytes(made)
    with GGUFFile.open(path) as a, GGUFFile.open(other) as b:
        changed = {
            n.rpartition(".")[2]
            for n, t in a.tensors.items()
            if n not in b.tensors or t.data.tobytes() != b.tensors[n].data.tobytes()
        }
    return "`ssm_a`" if changed == {"ssm_a"} else "**other**"


def forms_row(path: Path) -> str:
    """Return a line of the table of variants."""
    found, model = np.load(path), llama_py.load(path.with_suffix(".gguf"), like=TRANSFORMERS)
    ids, cells = found["ids"].tolist(), []
    for form in FORMS:
        options = {**EXACT, "n_ubatch": MOST.get(form, 512), "forms": {"delta_net": form}}
        for n in (len(ids), 1):
            ctx = model.context(512, **options)
            parts = [ctx.decode(ids[i : i + n], logits="all") for i in range(0, len(ids), n)]
            cells.append(cell(nmse(found["logits"], np.concatenate(parts))))
    return f"| {' | '.join([path.stem, *cells])} |"


def cell(value: float) -> str:
    return f"{value:.1e}" if value <= BOUND else f"**{value:.1e}**"


def error(path: Path, like: str, found: Mapping[str, Any]) -> float:
    """Return the NMSE of a model's logits against transformers' logits."""
    overrides = OVERRIDES.get(path.stem, {}) if like != LIKE[0] else {}
    model = llama_py.load(in_floats(path), like=like, kv_overrides=overrides)
    ids, expected = found["ids"].tolist(), found["logits"]
    ctx = model.context(512, n_ubatch=512, **EXACT)
    if model.has_encoder:
        ctx.encode(ids)
    return nmse(expected, ctx.decode(ids[: len(expected)], logits="all"))


def in_floats(path: Path) -> Path:
    """Return a model without quantized activations: the file, or a file with its values."""
    if not path.stem.endswith("-mxfp4"):
        return path
    floats = path.with_suffix(".f32")
    if gguf(["quantize", "--force", "--allow-requantize", str(path), str(floats), "F32"]):
        raise SystemExit(f"{path}: not dequantized")
    return floats


if __name__ == "__main__":
    sys.exit(main())
