"""Weights that do not fit into the memory stay in the mapped file."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import llama_py
from dev import tiny_models as tiny
from ggml_py.backend import registry
from ggml_py.errors import AllocError
from ggml_py.machine import host
from llama_py.fit.reserve import context_reserve
from llama_py.gguf.parts import file_bytes
from llama_py.params import ContextParams, ModelParams
from llama_py.weights.repacking import RESERVE, HostWeight, MemoryLimit, plan_repacking
from llama_py_tools.gguf.main import main as gguf_command

MIB = 1 << 20
GIB = 1 << 30
OUTPUT = HostWeight("output.weight", 20, 22)


def layer(il: int) -> list[HostWeight]:
    """11 bytes of attention and 110 of experts, repacked."""
    experts = [HostWeight(f"blk.{il}.ffn_{kind}_exps.weight", 50, 55) for kind in ("up", "down")]
    return [HostWeight(f"blk.{il}.attn_q.weight", 10, 11), *experts]


def model(n_layers: int) -> list[HostWeight]:
    return [*(w for il in range(n_layers) for w in layer(il)), OUTPUT]


def test_all_is_repacked_if_it_fits() -> None:
    assert plan_repacking(model(3), 3 * 121 + 22) is None
    assert plan_repacking(model(3), 3 * 121 + 21) is not None


@pytest.mark.parametrize(
    ("free", "layers", "shown"),
    [
        (350, {2}, "the experts of layer 2 (0.00 MiB)"),
        (200, {1, 2}, "the experts of layers 1-2 "),
        (65, {0, 1, 2}, "the experts of layers 0-2 "),
    ],
)
def test_what_every_token_needs_is_repacked_first(free: int, layers: set[int], shown: str) -> None:
    plan = plan_repacking(model(3), free)
    assert plan is not None
    assert plan.names == {w.name for il in layers for w in layer(il)[1:]}
    assert plan.repacked == 3 * 121 + 22 - 110 * len(layers)
    assert plan.mapped == 100 * len(layers)
    assert shown in str(plan)


def test_a_model_without_experts_is_repacked_from_its_first_layer() -> None:
    dense = [OUTPUT, *(layer(il)[0] for il in range(4))]
    plan = plan_repacking(dense, 50)  # a tenth is for pages of the file
    assert plan is not None and plan.names == {layer(il)[0].name for il in (2, 3)}
    assert "the weights of layers 2-3 " in str(plan)
    nothing = plan_repacking(dense, 0)
    assert nothing is not None and nothing.repacked == 0
    assert "the weights of layers 0-3 and the output " in str(nothing)


def test_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = llama_py.load().devices[-1]
    monkeypatch.setattr(host, "memory", lambda: (8 * GIB, 16 * GIB))
    monkeypatch.setattr(host, "own_memory", lambda: GIB)
    assert MemoryLimit().free_bytes(cpu) == 7 * GIB
    assert MemoryLimit(reserve=5).free_bytes(cpu) == 8 * GIB - 5
    assert MemoryLimit(3 * GIB).free_bytes(cpu) == 2 * GIB - RESERVE
    assert MemoryLimit(12 * GIB, 0).free_bytes(cpu) == 8 * GIB
    assert MemoryLimit(GIB // 2).free_bytes(cpu) == 0


def logits(path: Path, free: int | None = None, **how: int) -> tuple[NDArray[np.float32], set[str]]:
    """Return logits of a prompt, and the names of repacked weights.

    free  bytes that the host has while the weights are loaded; None: its own
    """
    with pytest.MonkeyPatch.context() as patch:
        if free is not None:
            patch.setattr(host, "memory", lambda: (free, 16 * GIB))
        model = llama_py.load(path, **how)  # type: ignore[arg-type]
    with model:
        rows = model.context(n_ctx=64).decode([3, 1, 4, 1, 5])
        return np.array(rows), {t.name for t in model._weights.all_tensors if t.layout}


@pytest.mark.parametrize("arch", ["qwen3moe", "qwen3next"])
def test_a_model_with_mapped_experts_computes_the_same(
    arch: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "quantized.gguf"
    assert not gguf_command(["quantize", str(tiny.write(arch, "moe", tmp_path)), str(path), "Q8_0"])
    want, every = logits(path)
    experts = {name for name in every if "exps" in name}
    assert experts and experts < every
    with llama_py.load(path) as model:
        infos = model.file.tensors
        sizes = {name: infos[name].nbytes for name in every}
    dense = sum(sizes[name] for name in every - experts)
    free = dense + sum(sizes.values()) // 8
    with caplog.at_level(logging.WARNING, "llama_py"):
        found, repacked = logits(path, free, reserve=0)
    assert every - experts <= repacked < every
    assert "remain in the file, which is slow" in caplog.text
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-4 * np.abs(want).max())
    caplog.clear()
    _, again = logits(
        path, max_memory=1, use_mmap=False
    )  # bytes in memory: repacking takes no more
    assert again == every and not caplog.text


def test_a_file_that_cannot_be_read_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "memory", lambda: (1000, 16 * GIB))
    with pytest.raises(AllocError, match=r"cannot be read into memory, of which 0 MiB .*omit"):
        llama_py.load(use_mmap=False)


def test_what_a_context_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planned only if the model takes a quarter of the memory or more."""
    path = tiny.write("llama", "dense", tmp_path)
    p, cpu = ContextParams(n_ctx=64), registry.device("cpu")
    with llama_py.load(path) as model:
        use = model.context(n_ctx=64).memory_breakdown()["cpu"]
    size = path.stat().st_size
    for free, want in ((4 * size + 1, None), (4 * size, use["context"] + use["compute"])):
        monkeypatch.setattr(host, "memory", lambda free=free: (free, 16 * GIB))
        assert context_reserve(path, [cpu], ModelParams(), p) == want
    limited = ModelParams(max_memory=size)
    monkeypatch.undo()
    assert context_reserve(path, [cpu], limited, p) == use["context"] + use["compute"]
    assert context_reserve(tmp_path, [cpu], limited, p) is None
    assert context_reserve(path, [cpu], replace(limited, quantize="Q8_0"), p) is None


def test_bytes_of_all_parts(tmp_path: Path) -> None:
    for name, n in (("a[1]-00001-of-00002.gguf", 3), ("a[1]-00002-of-00002.gguf", 4),
                    ("a[1]-0000x-of-00002.gguf", 8), ("a1-00001-of-00002.gguf", 16)):  # fmt: skip
        (tmp_path / name).write_bytes(bytes(n))
    assert file_bytes(tmp_path / "a[1]-00002-of-00002.gguf") == 7
    (tmp_path / "b.gguf").write_bytes(bytes(5))
    assert file_bytes(tmp_path / "b.gguf") == 5
    assert file_bytes(tmp_path / "c.gguf") == 0


def test_weights_that_are_converted_must_fit(tmp_path: Path) -> None:
    path = tiny.write("llama", "dense", tmp_path)
    with pytest.raises(AllocError, match=r"weights need \d MiB of memory, .* 0 MiB .*--quantize"):
        llama_py.load(path, quantize="Q8_0", max_memory=1)
