"""quantize --prune-layers: metadata describe the layers that remain, or the command refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from dev import tiny_models as tiny
from dev.tiny_models._file import gguf
from dev.tiny_models._invent import tensors
from ggml_py.errors import GGUFError, HParamsError, WeightsError
from llama_py.gguf.file import GGUFFile
from llama_py.loading.model import DEMO
from llama_py.quantize.prune import pruned_metadata
from llama_py_tools.gguf import main


def pruned(path: Path, layer: int) -> Path:
    out = path.with_name(f"without-{layer}.gguf")
    options = ["--force", "--allow-requantize", "--prune-layers", str(layer)]
    assert main(["quantize", *options, str(path), str(out), "COPY"]) == 0
    return out


@pytest.mark.parametrize(
    ("arch", "variant", "layer", "changed"),
    [
        ("kimi-linear", "moe", 0, {"leading_dense_block_count": 0}),
        ("qwen35", "mtp", 2, {"nextn_predict_layers": 0}),
        ("qwen35", "mtp", 0, {"nextn_predict_layers": 1}),
        ("minimax-01", "moe", 0, {"full_attention_interval": 0}),
        ("gemma2", "bases", 0, {}),
        ("deepseek4", "mtp", 1, {"nextn_predict_layers": 1}),
        ("glm5-next", "moe", 0, {"leading_dense_block_count": 0}),
        ("glm-dsa", "shared", 4, {"nextn_predict_layers": 0}),
        ("t5", "gated", 1, {}),
    ],
)
def test_keys_describe_the_layers_left(
    arch: str, variant: str, layer: int, changed: dict[str, Any], tmp_path: Path
) -> None:
    path = tiny.write(arch, variant, tmp_path)
    with llama_py.load(pruned(path, layer)) as model, GGUFFile.open(path) as file:
        new, old = model.file.metadata, file.metadata
        n = int(old[f"{arch}.block_count"])
        assert new[f"{arch}.block_count"] == n - 1
        for key, value in changed.items():
            assert np.array_equal(new[f"{arch}.{key}"], value)
        lists = [k for k in old if k.startswith(arch) and old.count(k) == n]
        for key in lists:
            assert np.array_equal(new[key], np.delete(old[key], layer)), key
        kind = model.architecture.HParams(old, arch)
        kept = [shape for il, shape in enumerate(kind.layers) if il != layer]
        assert list(model.hparams.layers) == kept


@pytest.mark.parametrize(
    ("arch", "variant", "layer", "reason"),
    [
        ("olmo2", "windows", 0, "rope of layer 1 would change"),
        ("gemma3n", "shared", 21, "per_layer_token_embd.weight"),
        ("gemma4", "shared", 4, "per_layer_token_embd.weight"),
        ("qwen3vl", "dense", 0, "image embeddings for the first layers must have"),
    ],
)
def test_layers_that_keys_cannot_describe(
    arch: str, variant: str, layer: int, reason: str, tmp_path: Path
) -> None:
    path = tiny.write(arch, variant, tmp_path)
    with GGUFFile.open(path) as file, pytest.raises(GGUFError, match=reason):
        pruned_metadata(file, {layer})


def test_a_model_without_its_nextn_layer_is_the_same_model(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").symlink_to(DEMO)
    with llama_py.load() as before, llama_py.load(pruned(tmp_path / "m.gguf", 4)) as after:
        ids = before.tokenize("ROMEO:\nBut soft")
        a, b = (model.context(n_ctx=64).decode(ids) for model in (before, after))
        assert np.array_equal(a, b)
        assert after.hparams.n_layer_nextn == 0


def test_a_trunk_layer_counted_as_nextn_is_refused(tmp_path: Path) -> None:
    made = tiny.find("qwen35", "mtp")
    keys, arrays = tiny.metadata("qwen35", made), tensors("qwen35", made)
    layers = {name: x for name, x in arrays.items() if not name.startswith("blk.2.nextn.")}
    (tmp_path / "m.gguf").write_bytes(gguf(keys, layers))
    with pytest.raises(WeightsError, match=r"layer 2 has no tensor blk\.2\.nextn\.\*"):
        llama_py.load(tmp_path / "m.gguf")


def test_a_list_longer_than_the_layers_is_refused(tmp_path: Path) -> None:
    made = tiny.find("qwen35", "dense")
    keys = tiny.metadata("qwen35", made)
    keys["qwen35.attention.recurrent_layers"] = [True, False, True]
    (tmp_path / "m.gguf").write_bytes(gguf(keys, tensors("qwen35", made)))
    with pytest.raises(HParamsError, match="must have 2 items instead of 3"):
        llama_py.load(tmp_path / "m.gguf")
