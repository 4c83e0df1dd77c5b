"""Read and write sparse autoencoders in the layouts of SAELens, Gemma Scope and sparsify."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ModelError
from ggml_py.machine.extras import install_hint

Arrays = dict[str, npt.NDArray[np.float32]]
CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"
FILES = (WEIGHTS, "sae.safetensors", "params.npz")
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
# alternative names of weights in SAELens files
NAMES = {
    "w_enc": "W_enc",
    "w_dec": "W_dec",
    "encoder.weight": "W_enc",
    "encoder.bias": "b_enc",
    "decoder.weight": "W_dec",
    "decoder.bias": "b_dec",
}
# Gemma Scope's repositories: gemma-scope-2b-pt-res, ...
SCOPE = {"res": "hook_resid_post", "mlp": "hook_mlp_out", "att": "attn.hook_z"}


def read(path: str | Path) -> tuple[dict[str, Any], Arrays]:
    """Read configuration and weights of a folder, or of a file next to its configuration.

    Raises ModelError for an invalid file, or if the safetensors library is missing.
    """
    given = Path(path)
    file = next((given / f for f in FILES if (given / f).is_file()), given)
    if not file.is_file():
        raise ModelError(
            f"{path}: no SAE found; the folder must contain {CONFIG} and {', '.join(FILES)}"
        )
    found = _read_npz(file) if file.suffix == ".npz" else _read_safetensors(file)
    arrays = {NAMES.get(name, name): values for name, values in found.items()}
    beside = file.with_name(CONFIG)
    cfg = json.loads(beside.read_text("utf-8")) if beside.is_file() else {}
    if file.suffix == ".npz" and not cfg:
        cfg = _read_scope(file)
    if "num_latents" in cfg or "expansion_factor" in cfg:
        cfg = _read_sparsify(cfg, file)
    return cfg, arrays


def write(folder: str | Path, cfg: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write SAELens's layout to a folder."""
    to, save = Path(folder), _safetensors("numpy").save_file
    to.mkdir(parents=True, exist_ok=True)
    save({k: np.ascontiguousarray(v) for k, v in arrays.items()}, to / WEIGHTS)
    (to / CONFIG).write_text(json.dumps(cfg, indent=2) + "\n", "utf-8")


def _read_safetensors(file: Path) -> Arrays:
    library = _safetensors()
    try:
        stored = library.deserialize(file.read_bytes())
    except library.SafetensorError as e:
        raise ModelError(f"{file}: not a safetensors file: {e}") from None
    return {name: _array(file, name, info) for name, info in stored}


def _array(file: Path, name: str, info: Mapping[str, Any]) -> npt.NDArray[np.float32]:
    if info["dtype"] == "BF16":  # the upper half of a float32
        wide = np.frombuffer(info["data"], "<u2").astype(np.uint32) << 16
        return wide.view(np.float32).reshape(info["shape"])
    if info["dtype"] not in DTYPES:
        raise ModelError(f"{file}: type of {name} must be BF16, F16 or F32, got {info['dtype']}")
    values = np.frombuffer(info["data"], DTYPES[info["dtype"]])
    return values.astype(np.float32).reshape(info["shape"])


def _read_npz(file: Path) -> Arrays:
    try:
        with np.load(file, allow_pickle=False) as stored:
            return {name: stored[name].astype(np.float32) for name in stored}
    except ValueError as e:
        raise ModelError(f"{file}: not an npz file of arrays: {e}") from None


def _read_scope(file: Path) -> dict[str, Any]:
    """Derive a configuration for Gemma Scope, which has no such file, from path and repository."""
    cfg: dict[str, Any] = {"architecture": "jumprelu", "apply_b_dec_to_input": False}
    layer = re.search(r"layer_(\d+)", str(file))
    kind = re.search(r"gemma-scope-\w+-\w+-(res|mlp|att)\b", str(file))
    if layer and kind:
        cfg["hook_name"] = f"blocks.{layer[1]}.{SCOPE[kind[1]]}"
    return cfg


def _read_sparsify(cfg: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Return the configuration of a folder `layers.5`, which uses that layer's result."""
    layer = re.search(r"layers\.(\d+)$", file.parent.name)
    found = {"architecture": "topk", "k": cfg.get("k", 0)}
    return {**found, "hook_name": f"blocks.{layer[1]}.hook_resid_post"} if layer else found


def _safetensors(part: str = "") -> Any:
    from importlib import import_module

    try:
        return import_module(f"safetensors.{part}" if part else "safetensors")
    except ImportError:
        raise ModelError(f"SAEs need safetensors: {install_hint('research')}") from None
