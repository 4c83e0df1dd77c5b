"""Files and rows for comparing quantization with llama.cpp, and the results of llama-quantize.

A file is sparse and has a GGUF header only, so its tensors can be as big as in large models.
`llama-quantize --dry-run` prints the types that llama.cpp chooses.
"""

from __future__ import annotations

import ctypes
import json
import lzma
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dev import tiny_models as tiny
from dev.tiny_models._invent import shapes
from ggml_py.types import BY_NAME, GGMLType
from llama_py.gguf.file import TensorInfo
from llama_py.gguf.write import encode, head

DATA = Path(__file__).parents[3] / "tests" / "data" / "quantize"
TYPES, BLOCKS = "types.json.xz", "blocks.npz"
WIDTH = 256  # minimum row length of tiny models

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """File to quantize, with the options of llama-quantize.

    metadata  metadata of the file
    tensors   ne by name; all are f16, or f32 with one dimension
    types     target types
    options   options of llama-quantize
    imatrix   True to use an importance matrix
    """

    metadata: Mapping[str, Any]
    tensors: Mapping[str, tuple[int, ...]]
    types: Sequence[str]
    options: Sequence[str] = ()
    imatrix: bool = False


@dataclass(frozen=True)
class Shape:
    """Shape of a decoder with many layers."""

    arch: str
    n_layer: int
    heads: Sequence[int] = (8, 2)
    n_expert: int = 0
    parts: Sequence[str] = ("attn_q", "attn_k", "attn_v", "attn_output")
    tied: bool = False


SHAPES = {
    name: Shape(**sizes)
    for name, sizes in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8")).items()
}
OPTIONS: dict[str, Sequence[str]] = {
    "pure": ("--pure",),
    "leave": ("--leave-output-tensor",),
    "output": ("--output-tensor-type", "Q5_1"),
    "embedding": ("--token-embedding-type", "iq4_nl"),
    "named": ("--tensor-type", "attn_v=q8_0", "--tensor-type", r"blk\.[0-3]\.ffn_.*=Q3_K"),
    "pruned": ("--prune-layers", "2,5,6"),
}
FEW = ("Q4_K_M", "IQ2_M", "Q8_0", "F16", "COPY")


def cases(all_types: Sequence[str]) -> Iterator[tuple[str, Case]]:
    for name, shape in SHAPES.items():
        metadata, tensors = _layers(shape)
        yield name, Case(metadata, tensors, all_types)
    dense = _layers(SHAPES["dense"])
    yield "dense-imatrix", Case(*dense, all_types, (), True)
    for name, options in OPTIONS.items():
        yield f"dense-{name}", Case(*dense, FEW, options)
    narrow = {n: (ne[0] + 32 * (i % 3), *ne[1:]) for i, (n, ne) in enumerate(dense[1].items())}
    odd = {n: (ne[0] + (i % 5 == 1) * 8, *ne[1:]) for i, (n, ne) in enumerate(narrow.items())}
    yield "odd-rows", Case(dense[0], odd, all_types)
    for arch, variant in tiny.every():
        yield f"{arch}-{variant}", tiny_case(arch, variant)


def _layers(s: Shape) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    n, n_ff = 256, 512
    sizes = {
        "context_length": 256,
        "embedding_length": n,
        "feed_forward_length": n_ff,
        "block_count": s.n_layer,
        "attention.head_count": s.heads[0],
        "attention.head_count_kv": s.heads[1],
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.layer_norm_epsilon": 1e-5,
        "vocab_size": 64,
    }
    if s.n_expert:
        sizes |= {"expert_count": s.n_expert, "expert_used_count": 2}
    metadata = {"general.architecture": s.arch} | {f"{s.arch}.{k}": v for k, v in sizes.items()}
    tensors: dict[str, tuple[int, ...]] = {"token_embd.weight": (n, 64), "output_norm.weight": (n,)}
    if not s.tied:
        tensors["output.weight"] = (n, 64)
    experts, end = ((s.n_expert,), "_exps") if s.n_expert else ((), "")
    for il in range(s.n_layer):
        block = f"blk.{il}."
        tensors[f"{block}attn_norm.weight"] = (n,)
        tensors |= {f"{block}{part}.weight": (n, n) for part in s.parts}
        tensors |= {f"{block}ffn_{p}{end}.weight": (n, n_ff, *experts) for p in ("gate", "up")}
        tensors[f"{block}ffn_down{end}.weight"] = (n_ff, n, *experts)
        if s.n_expert:
            tensors[f"{block}ffn_gate_inp.weight"] = (n, s.n_expert)
    return metadata, tensors


def tiny_case(arch: str, variant: str) -> Case:
    """Return the case of a tiny model with rows of complete blocks, and a few types."""
    made = tiny.find(arch, variant)
    tensors = {
        name: (-(-ne[0] // WIDTH) * WIDTH, *ne[1:]) if len(ne) > 1 else ne
        for name, ne in shapes(arch, made).items()
    }
    return Case(tiny.metadata(arch, made), tensors, ("Q4_K_M", "Q2_K", "IQ3_XS", "MXFP4_MOE"))


def write_head(path: Path, case: Case, matrices: str = "f16") -> None:
    """Write a sparse file, without disk space for the tensors.

    matrices  the type of tensors with more than one dimension
    """
    stored = {key: _encoded(value) for key, value in case.metadata.items()}
    infos = [_info(name, ne, matrices) for name, ne in case.tensors.items()]
    raw = head(stored, infos, 32)
    size = sum(-(-t.nbytes // 32) * 32 for t in infos)
    with path.open("wb") as file:
        file.write(raw)
        file.truncate(len(raw) + size)


def _info(name: str, ne: tuple[int, ...], matrices: str) -> TensorInfo:
    type = BY_NAME[matrices if len(ne) > 1 else "f32"]
    nbytes = type.type_size * int(np.prod(ne))
    whole = (*ne, 1, 1, 1)[:4]
    return TensorInfo(name, type, whole, 0, nbytes, np.empty(0, np.uint8))


def _encoded(value: Any) -> bytes:
    items = list(value) if isinstance(value, list | tuple) else [value]
    kinds = {str: "str", bool: "bool", float: "f32", int: "u32", tiny.Wide: "u64"}
    kind = kinds[type(items[0])]
    if kind == "u32" and min(items) < 0:
        kind = "i32"
    return encode(f"arr[{kind}]", items) if isinstance(value, list | tuple) else encode(kind, value)


def packed(types: Sequence[str]) -> str:
    """Return types as a string with repeat counts: `f32 3*q4_K`."""
    runs = [(type, len(list(run))) for type, run in groupby(types)]
    return " ".join(type if n == 1 else f"{n}*{type}" for type, n in runs)


_LINE = re.compile(r"^\[ *\d+/ *\d+\] (\S+) +- \[.*\], type = +(\w+), size = .*?(?:\((\w+)\))?$")


def dry_run(tool: Path, path: Path, type: str, options: Sequence[str]) -> list[str] | None:
    """Return the types that llama-quantize chooses for the tensors; None if it fails."""
    command = [str(tool), "--dry-run", *options, str(path), type]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    found = printed_types(done.stdout + done.stderr)
    return None if done.returncode else found or None


def printed_types(text: str) -> list[str]:
    """Return the tensors' new types from the output of llama-quantize."""
    return [m[3] or m[2] for line in text.splitlines() if (m := _LINE.match(line))]


def rows() -> tuple[Floats, Floats]:
    """Return rows of several distributions with f16 values [6, 512], and importance [512]."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((6, 512)) * 0.03
    x[1] = rng.standard_t(2, 512) * 0.02
    x[2, :256] = np.abs(x[2, :256])
    x[2, 256:] = -np.abs(x[2, 256:])
    x[3] = np.round(x[3] * 40) / 40
    x[4, :320], x[4, 320:352], x[4, 384:] = 0, 0.5, x[4, 384:] * 1e-3
    x[5] = np.sign(x[5]) * 0.25
    weights = rng.random(512) ** 3 + 1e-3
    return x.astype(np.float16).astype(np.float32), weights.astype(np.float16).astype(np.float32)


def quantized(library: Path) -> Callable[[GGMLType, Floats, Floats | None], npt.NDArray[np.uint8]]:
    """Return llama.cpp's ggml_quantize_chunk, from the library libggml-base."""
    chunk = ctypes.CDLL(str(library)).ggml_quantize_chunk
    chunk.restype = ctypes.c_size_t
    i64, address = ctypes.c_int64, ctypes.c_void_p
    chunk.argtypes = [ctypes.c_int, address, address, i64, i64, i64, address]

    def call(type: GGMLType, x: Floats, weights: Floats | None) -> npt.NDArray[np.uint8]:
        out = np.zeros((len(x), type.row_size(x.shape[1])), np.uint8)
        importance = None if weights is None else weights.ctypes.data
        chunk(type.id, x.ctypes.data, out.ctypes.data, 0, len(x), x.shape[1], importance)
        return out

    return call


def recorded_types() -> dict[str, dict[str, str]]:
    """Return the recorded tensor types as packed strings, by case and file type."""
    found: dict[str, dict[str, str]] = json.loads(lzma.decompress((DATA / TYPES).read_bytes()))
    return found
