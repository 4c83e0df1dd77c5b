"""LoRA adapters of weights that devices share: each has its part of A or of B."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from ggml_py.errors import WeightsError
from ggml_py.types import BY_NAME
from llama_py.adapters.lora import Adapter
from llama_py.batch import Batch
from llama_py.context import Context
from llama_py.model import Model
from tests.support.adapters import matrices, pairs, write_adapter
from tests.support.live_models import made, model_of, nmse
from tests.support.split_models import EXACT, IDS, KEYS, cached, run, shared, whole

CLOSE = 1e-10
NAMES = [
    "llama-dense",
    "qwen35moe-moe",
    "qwen3next-moe",
    "mamba-dense",
    "mamba2-dense",
    "kimi-linear-moe",
    "deepseek2-moe",
    "lfm2-dense",
    "rwkv6-fused",
    "olmo2-dense",
    "kimi-k3-moe",
]


def adapter_file(name: str, folder: Path, seed: int = 0, type: str = "f32") -> Path:
    """Of all matrices of a model."""
    metadata, arrays = made(name, **KEYS[name])
    changes = pairs(arrays, matrices(arrays), 4 if type == "f32" else 32, seed)
    arch = metadata["general.architecture"]
    return write_adapter(folder / f"{seed}", arch, changes, type=BY_NAME[type])


def adapted(model: Model, adapter: Adapter) -> np.ndarray:
    ctx = Context(model, **EXACT)
    ctx.set_adapters({adapter: 0.5})
    return np.concatenate([ctx.decode(IDS[:9], logits="all"), ctx.decode(IDS[9:10])])


@pytest.mark.parametrize("name", NAMES)
def test_an_adapter_is_cut_as_its_weights_are(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = adapter_file(name, tmp_path)
    with caplog.at_level(logging.WARNING, "llama_py"):
        one, three = (
            adapted(model, model.load_adapter(file))
            for model in (whole(name), cached(name, (2, 1, 1)))
        )
    assert not [m for m in caplog.messages if "--like transformers" not in m]
    assert nmse(one, three) <= CLOSE
    plain = Context(whole(name), **EXACT).decode(IDS[:9], logits="all")
    assert nmse(plain, one[:9]) > 1e-3


def test_parts_are_where_the_weights_are(tmp_path: Path) -> None:
    name = "llama-dense"
    model = cached(name, (1, 1))
    found = model.load_adapter(adapter_file(name, tmp_path)).pairs
    sizes = {
        f"{stem}.{i}": (pair.a.ne[:2], pair.b.ne[:2])
        for stem in ("q", "k", "output")
        for i in range(2)
        for pair in [found[f"blk.0.attn_{stem}.weight.{i}"]]
    }
    assert sizes == {
        "q.0": ((64, 4), (4, 128)),
        "q.1": ((64, 4), (4, 128)),
        "k.0": ((64, 4), (4, 64)),
        "k.1": ((64, 4), (4, 64)),
        "output.0": ((128, 4), (4, 64)),
        "output.1": ((128, 4), (4, 64)),
    }
    for pair in found.values():
        for part in pair.parts:
            assert part.device in model.devices
            assert part.tensor.buffer is not None


def test_rows_of_matrices(tmp_path: Path) -> None:
    name = "llama-dense"
    file = adapter_file(name, tmp_path)
    one, two = whole(name), shared(name, (2, 1), "row")
    found = [adapted(model, model.load_adapter(file)) for model in (one, two)]
    assert nmse(*found) <= CLOSE


def test_sequences_have_their_own_and_they_change(tmp_path: Path) -> None:
    name, found = "qwen35moe-moe", []
    files = [adapter_file(name, tmp_path, seed) for seed in range(2)]
    for model in (whole(name), cached(name, (1, 1, 1))):
        a, b = map(model.load_adapter, files)
        ctx = Context(model, **EXACT, n_seq_max=2)
        ctx.set_adapters({a: 1.0}, seq_id=0)
        ctx.set_adapters({a: 0.3, b: -0.5}, seq_id=1)
        seqs = [(s,) for s in (0, 1) for _ in range(8)]
        ctx.decode(Batch(IDS[:16], seq_ids=seqs), logits="none")
        ctx.set_adapters({b: 1.0}, seq_id=0)
        last = Batch(IDS[16:18], seq_ids=[(0,), (1,)], outputs=[True] * 2)
        found.append(ctx.decode(last))
    assert nmse(*found) <= CLOSE


def test_blocks_of_an_adapter_are_not_cut(tmp_path: Path) -> None:
    """96 hidden channels in two halves are one block of 32 and a half each."""
    model = cached("llama-dense", (1, 1))
    file = adapter_file("llama-dense", tmp_path, type="q8_0")
    problem = r"would cut .*ffn_down.weight.lora_a\.0 within blocks of 32 elements of q8_0"
    with pytest.raises(WeightsError, match=problem):
        model.load_adapter(file)
    file = adapter_file("llama-dense", tmp_path, type="f16")
    found = [adapted(m, m.load_adapter(file)) for m in (whole("llama-dense"), model)]
    assert nmse(*found) <= 1e-6  # what goes into a product with F16 is rounded to it


def test_quantized_parts(tmp_path: Path) -> None:
    """The adapter of a model whose weights are quantized."""
    name = "llama-dense"
    metadata, arrays = made(name, **KEYS[name])
    types = {n: BY_NAME["q8_0"] for n in matrices(arrays) if n.startswith("blk.")}
    file = adapter_file(name, tmp_path)
    one, two = model_of(metadata, arrays, "cpu", types), shared(name, (1, 1), types=types)
    found = [adapted(model, model.load_adapter(file)) for model in (one, two)]
    assert nmse(*found) <= 1e-4
    assert nmse(run(one)[:9], found[0][:9]) > 1e-2
