"""LoRA adapters beside the real llama.cpp: the same nodes, the same logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import llama_py
from ggml_py.inspection.dump import Record, diff, records
from llama_py_tools.graph import main
from llama_py_tools.graph.peer import Peer
from tests.support.adapters import matrices, pairs, write_adapter
from tests.support.commands import tiny_model
from tests.support.golden_models import uses
from tests.support.live_models import Arrays, made, nmse, tokens

pytest.importorskip("llama_cpp", reason="needs llama-cpp-python: pip install '.[parity]'")
pytestmark = pytest.mark.parity

OPTIONS: dict[str, Any] = {"n_ctx": 256, "n_batch": 64, "n_ubatch": 64, "flash_attn": "off"}
# Latent attention, Kimi's delta nets and RWKV's decays are left out: llama.cpp multiplies past
# their adapters.
NAMES = [
    "llama-dense",
    "qwen2-dense",
    "qwen35moe-moe",
    "qwen3next-moe",
    "gpt-oss-moe",
    "gemma2-dense",
    "lfm2-dense",
    "mamba2-dense",
    "falcon-h1-dense",
    "rwkv6-fused",
]


def applied(arrays: Arrays) -> list[str]:
    """Without feed-forwards that have a scale: there llama.cpp scales what the adapter adds."""
    scaled = {n.removesuffix(".scale") for n in arrays if n.endswith(".scale")}
    ffn = {f"{s}.weight" for s in scaled if ".ffn_" in s and "exps" not in s}
    return [n for n in matrices(arrays) if n not in ffn and "_decay_w" not in n]


def adapter_of(name: str, folder: Path) -> Path:
    metadata, arrays = made(name)
    changes = pairs(arrays, applied(arrays))
    return write_adapter(folder / "lora.gguf", metadata["general.architecture"], changes)


@pytest.mark.parametrize("name", NAMES)
def test_nodes_and_logits(name: str, tmp_path: Path) -> None:
    path, file = str(tiny_model(tmp_path, name)), adapter_of(name, tmp_path)
    nodes, theirs = list[Record](), list[Record]()
    model = llama_py.load(path, "ref")
    ctx = model.context(**OPTIONS, type_k="f32", type_v="f32")
    ctx.set_adapters({model.load_adapter(file): 0.7})
    ctx.on_graph = lambda res, _: nodes.extend(records(res.graph, 0))
    found = ctx.decode(tokens(20))[0]
    watch: Any = lambda record, _: theirs.append(record)  # noqa: E731
    with Peer(path, cache="f32", n_threads=1, watch=watch, **OPTIONS) as peer:
        peer.set_adapters([(str(file), 0.7)])
        expected = peer.decode(tokens(20))
    assert str(diff(nodes, theirs) or "") == ""
    assert sum(r["op"] == "SCALE" for r in nodes) >= len(model.adapters[0].pairs)
    # llama.cpp's GELU is a table of F16 values, and each layer rounds by it
    gelu = 1.5e-7 * model.hparams.n_layer
    assert nmse(expected, found) <= (gelu if uses(name, "GEGLU", "GELU") else 1e-8)
    ctx.set_adapters()
    ctx.clear()
    assert nmse(expected, ctx.decode(tokens(20))[0]) > 1e-3


def test_the_command_compares_with_adapters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file = tiny_model(tmp_path), adapter_of("llama-dense", tmp_path)
    args = ["-m", str(path), "--tokens", "1,2,3", "--against", "llama.cpp", "-c", "256"]
    assert main(["diff", *args]) == 0
    n = int(capsys.readouterr().out.split()[1])
    assert main(["diff", *args, "--lora-scaled", f"{file}:0.5"]) == 0
    assert int(capsys.readouterr().out.split()[1]) > n
