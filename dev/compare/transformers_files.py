"""Stored models in other layouts than transformers saves: names, FP8 with block scales, MXFP4."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from dev.compare.transformers_models import join_tables

FP8_BLOCK = 128
# The dense layer of Kimi-Linear is saved under the name of the others' experts.
NAMES = {"kimi-linear": {"layers.0.block_sparse_moe.": "layers.0.mlp."}, **join_tables("NAMES")}


def rename(name: str, folder: Path) -> None:
    """Give tensors the names of the authors' checkpoint if transformers stores other names."""
    for old, new in NAMES.get(name, {}).items():
        write(folder, {key.replace(old, new): t for key, t in read(folder).items()})


def quantize(kind: str, folder: Path) -> Any:
    """Store a model's matrices as "fp8" or "mxfp4". -> transformers' setting that reads them"""
    torch, hub = import_module("torch"), import_module("transformers")
    tensors, stored = read(folder), {}
    for name, t in tensors.items():
        stored |= STORE[kind](torch, name, t)
    write(folder, stored)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = CONFIGS[kind]
    path.write_text(json.dumps(config))
    reader = hub.FineGrainedFP8Config if kind == "fp8" else hub.Mxfp4Config
    return reader(dequantize=True)


def store_fp8(torch: Any, name: str, t: Any) -> dict[str, Any]:
    """Return a matrix of a layer as E4M3 with an F32 scale per 128x128 values (DeepSeek-V3)."""
    if t.ndim != 2 or ".layers." not in name or name.endswith(".gate.weight"):
        return {name: t}
    grid = [-(-n // FP8_BLOCK) for n in t.shape]
    scales = torch.rand(*grid) * 2 + 0.5  # scaled values are below 448, the maximum of E4M3
    each = scales.repeat_interleave(FP8_BLOCK, 0).repeat_interleave(FP8_BLOCK, 1)
    values = (t / each[: t.shape[0], : t.shape[1]]).to(torch.float8_e4m3fn)
    return {name: values, f"{name}_scale_inv": scales}


def store_mxfp4(torch: Any, name: str, t: Any) -> dict[str, Any]:
    """Return random blocks for a matrix per expert, like gpt-oss's: every code, several scales."""
    if t.ndim != 3:
        return {name: t}
    n_experts, n_in, n_out = t.shape
    shape = n_experts, n_out, n_in // 32
    blocks = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8)
    scales = torch.randint(121, 125, shape, dtype=torch.uint8)
    return {f"{name}_blocks": blocks, f"{name}_scales": scales}


STORE = {"fp8": store_fp8, "mxfp4": store_mxfp4}
CONFIGS = {
    "fp8": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [FP8_BLOCK, FP8_BLOCK],
    },
    "mxfp4": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
    },
}


def read(folder: Path) -> dict[str, Any]:
    """Read all tensors of a model in one file."""
    found: dict[str, Any] = import_module("safetensors.torch").load_file(path_of(folder))
    return found


def write(folder: Path, tensors: dict[str, Any]) -> None:
    """Replace a model's tensors."""
    import_module("safetensors.torch").save_file(tensors, path_of(folder), {"format": "pt"})


def path_of(folder: Path) -> Path:
    """Return the only file of a model's tensors."""
    return folder / "model.safetensors"
