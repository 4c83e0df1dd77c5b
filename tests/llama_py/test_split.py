"""Devices that share layers give what one gives: CPU devices that each have some of the threads."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from ggml_py.backend import host_memory
from ggml_py.errors import BackendError
from ggml_py.types import BY_NAME
from llama_py.batch import Batch
from llama_py.context import Context, state
from llama_py.loading.model import LoadedModel
from llama_py.loading.split.block import SplitBlock, SplitLinear
from llama_py.loading.split.walk import collect_values
from llama_py.weights.placement import arrange_devices, devices_in_use
from tests.support.graph_models import CONTINUING, is_folded, split
from tests.support.live_models import live, made, model_of, nmse
from tests.support.split_models import EXACT, IDS, KEYS, cached, kinds_of, run, shared, whole

CLOSE = 1e-10  # NMSE of logits: sums have another order
CLOSE_F16 = 1e-5  # partial sums are exchanged as F16
KV, DELTA_NET, KIMI = "qwen3moe-moe", "qwen35moe-moe", "kimi-linear-moe"


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("name", KEYS)
def test_devices_share_every_layer(name: str, n: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "llama_py"):
        model = cached(name, (1,) * n)
    assert not [m for m in caplog.messages if "--like transformers" not in m]
    assert nmse(run(whole(name)), run(model)) <= CLOSE
    assert kinds_of(model) == {"Norm", "SplitBlock"}
    ctx = Context(model, **EXACT)
    ctx.decode(IDS[:5])
    sizes = ctx.memory_breakdown()
    assert len(sizes) == n
    assert all(size["model"] and size["context"] and size["compute"] for size in sizes.values())
    splits = ctx.runner.graphs[0][1].splits
    products = [s.device.name for s in splits for t in s.nodes if t.op.startswith("MUL_MAT")]
    counts = [products.count(d.name) for d in ctx.devices]
    assert max(counts) - min(counts) <= 1  # all but a head of few rows, which one has


@pytest.mark.parametrize("name", ["llama-dense", KV, DELTA_NET, "mamba2-dense", "mamba-dense"])
def test_partial_sums_may_be_exchanged_in_a_smaller_type(name: str) -> None:
    found = run(cached(name, (1, 1)), reduce_type="f16")
    expected = run(whole(name))
    assert CLOSE < nmse(expected[:-2], found[:-2]) <= CLOSE_F16
    assert nmse(expected[-2:], found[-2:]) <= CLOSE_F16


def test_few_tokens_are_exchanged_as_they_are() -> None:
    ctx = Context(cached(KV, (1, 1)), **EXACT, reduce_type="f16")
    types: list[set[str]] = []
    ctx.on_graph = lambda res, _: types.append(
        {t.type.name for t in res.graph.nodes if t.op == "REDUCE"}
    )
    ctx.decode(IDS[:33], logits="all")
    ctx.decode(IDS[33:65], logits="all")
    assert types == [{"f16"}, {"f32"}]


@pytest.mark.parametrize("shares", [(1, 3), (2, 1, 4, 1), (5, 0, 3)])
@pytest.mark.parametrize("name", ["llama-dense", DELTA_NET, "mamba2-dense", KIMI, "rwkv6-fused"])
def test_uneven_shares(name: str, shares: tuple[float, ...]) -> None:
    assert nmse(run(whole(name)), run(shared(name, shares))) <= CLOSE


def able(name: str) -> bool:
    return name not in KEYS and not is_folded(name)


OTHERS = {split(name)[0]: name for name in reversed(CONTINUING) if able(name)}


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill new memory of devices with NaN, so that what nothing wrote shows."""
    made = host_memory.aligned_bytes

    def filled(*args: Any) -> Any:
        found = made(*args)
        found.fill(0xFF)
        return found

    monkeypatch.setattr(host_memory, "aligned_bytes", filled)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("name", OTHERS.values())
def test_every_architecture(name: str) -> None:
    """Blocks that cannot be shared stay where they are."""
    expected, found = (
        Context(model, **EXACT).decode(IDS[:20], logits="all")
        for model in (live(name, "cpu"), shared(name, (1, 1)))
    )
    assert nmse(expected, found) <= CLOSE


@pytest.mark.parametrize("name", ["llama-dense", DELTA_NET, "falcon-h1-dense", "lfm2-window"])
def test_rows_of_matrices(name: str) -> None:
    model = shared(name, (2, 1), "row")
    assert any(isinstance(x, SplitLinear) for x in collect_values(model.architecture))
    assert nmse(run(whole(name)), run(model)) <= CLOSE
    memory = Context(model, **EXACT).memory.memory_breakdown()
    assert list(memory) == ["cpu"]  # with the main device


def test_blocks_of_weights_stay_whole() -> None:
    """96 hidden channels are three blocks of 32: of four devices one has none of them, of heads
    each has some."""
    types = dict.fromkeys((f"blk.{il}.ffn_down.weight" for il in range(2)), BY_NAME["q8_0"])
    arrays = made("llama-dense", **KEYS["llama-dense"])
    one = model_of(*arrays, "cpu", types)
    four = shared("llama-dense", (1, 1, 1, 1), types=types)
    blocks = [x for x in collect_values(four.architecture.layers) if isinstance(x, SplitBlock)]  # type: ignore[attr-defined]
    assert sorted(sum(part is None for part in b.parts) for b in blocks) == [0, 0, 1, 1]
    assert nmse(run(one), run(four)) <= 1e-4  # activations are quantized in other places


def test_what_cannot_be_shared_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "llama_py"):
        shared("deci-mixed", (1, 1))
    assert caplog.messages == [
        "split_mode graph: OneMatrix, with blk.1.attn_output.weight [64, 64], is not split and"
        " runs on cpu: partial results of this block cannot be added",
        "split_mode graph: Attention, with blk.4.attn_output.weight [64, 64], is not split and"
        " runs on cpu: blk.4.attn_output.weight [64, 64] of f32 has too few heads or blocks to"
        " split over 2 devices",
    ]


def test_weights_that_were_sent_elsewhere_stay_there() -> None:
    metadata, arrays = made(KV, **KEYS[KV])
    file: Any = model_of(metadata, arrays, "ref").file
    model = LoadedModel(
        file,
        ["ref", "cpu"],
        split_mode="graph",
        tensor_split=(1, 1),
        tensor_overrides={"exps": "cpu"},
    )
    names = {t.name for t in model._weights.all_tensors if "exps" in t.name}
    assert names == {name for name in arrays if "exps" in name}
    assert any(t.name == "blk.0.attn_q.weight.1" for t in model._weights.all_tensors)


def four_sequences(model: Any, **options: Any) -> Context:
    """Sequence 1 is a copy of 0; of 2 the end was removed, 3 is another."""
    ctx = Context(model, **{**EXACT, "n_ctx": 1024, "n_seq_max": 4, **options})
    ctx.decode(IDS[:20])
    ctx.memory.seq_cp(0, 1)
    ctx.decode(IDS[20:50], seq_id=2)
    ctx.memory.seq_rm(2, 40 if ctx.memory.recr is None else 0)
    ctx.decode(IDS[50:60], seq_id=3)
    return ctx


def next_tokens(ctx: Context) -> np.ndarray:
    """Logits of one more token of each sequence."""
    return ctx.decode(Batch(IDS[60:64], seq_ids=[(0,), (1,), (2,), (3,)], outputs=[True] * 4))


@pytest.mark.parametrize(
    "name", [KV, DELTA_NET, "mamba2-dense", KIMI, "deepseek32-moe", "lfm2-dense", "rwkv6-fused"]
)
def test_sequences_are_copied_and_removed(name: str) -> None:
    expected = next_tokens(four_sequences(whole(name)))
    assert nmse(expected, next_tokens(four_sequences(cached(name, (1, 1, 1))))) <= CLOSE


@pytest.mark.parametrize(
    ("name", "flash_attn"),
    [
        (KV, "on"),
        (KV, "off"),
        (DELTA_NET, "on"),
        ("qwen3next-moe", "on"),
        ("mamba2-dense", "on"),
        (KIMI, "off"),
        ("deepseek32-moe", "off"),
        ("lfm2-dense", "off"),
        ("rwkv6-parts", "on"),
    ],
)
def test_a_saved_state_knows_no_split(name: str, flash_attn: str) -> None:
    """What one device saves two read, what they save one reads, and the bytes stay the same."""
    options = {"flash_attn": flash_attn, "type_k": "f32", "type_v": "f32"}
    models = [whole(name), cached(name, (1, 1)), whole(name)]
    src = four_sequences(models[0], **options)
    saved = [state.save(src)]
    expected = next_tokens(src)
    for model in models[1:]:
        dst = Context(model, **{**EXACT, "n_ctx": 1024, "n_seq_max": 4, **options})
        state.load(dst, saved[-1])
        saved.append(state.save(dst))
        assert saved[-1] == saved[0]
        assert nmse(expected, next_tokens(dst)) <= (CLOSE if flash_attn == "off" else 1e-6)


@pytest.mark.parametrize("name", [KV, "deepseek32-moe"])
def test_positions_of_keys_move_on_every_device(name: str) -> None:
    found = []
    for model in (whole(name), cached(name, (1, 1))):
        ctx = Context(model, **EXACT)
        ctx.decode(IDS[:40])
        ctx.memory.seq_rm(0, 5, 15)
        ctx.memory.seq_add(0, 15, -1, -10)
        found.append(ctx.decode(IDS[40:50], logits="all"))
    assert nmse(*found) <= CLOSE


def test_every_node_can_be_watched_and_checked() -> None:
    seen: list[str] = []
    run(cached(KV, (1, 1)), watch=lambda t: seen.append(t.name))
    assert {"Qcur-0", "Qcur-1", "Qcur-1000", "Qcur-1001", "ffn_inp-1001"} <= {*seen}
    ctx = Context(cached(KV, (1, 1)), **EXACT, check="ref")
    ctx.decode(IDS[:5])
    assert ctx.checker is not None


@pytest.mark.parametrize("name", ["qwen35moe-mtp", "deepseek32-moe"])
def test_a_draft_layer_is_shared_too(name: str) -> None:
    found = []
    one = model_of(*made(name, **KEYS.get(name, {})), "cpu", load_mtp=True)
    for model in (one, shared(name, (1, 1), load_mtp=True)):
        trunk = Context(model, **EXACT)
        trunk.set_embeddings_nextn(True)
        trunk.decode(IDS[:12], logits="all")
        assert trunk.h_nextn is not None
        draft = Context(model, **EXACT, mtp=True)
        found.append(draft.decode(Batch(IDS[1:13], embd=trunk.h_nextn), logits="all"))
    assert nmse(*found) <= CLOSE


def test_one_device_alone_is_the_main_one() -> None:
    devices = devices_in_use(["ref", "cpu"])
    assert arrange_devices(devices, "none", 0, ()) == (devices, ())
    three = devices_in_use(["cpu", "cpu", "cpu"])
    order, _ = arrange_devices(three, "none", 1, ())
    assert [d.name for d in order] == ["cpu.2", "cpu.3"]
    order, shares = arrange_devices(three, "graph", 2, (1, 2, 3))
    assert ([d.name for d in order], shares) == (["cpu.3", "cpu", "cpu.2"], (3, 1, 2))
    with pytest.raises(
        BackendError, match=r"main_gpu must be from 0 to 2, one of: cpu, cpu\.2.*got 3"
    ):
        arrange_devices(three, "graph", 3, ())


def test_devices_on_one_cpu_share_its_threads() -> None:
    devices: Any = devices_in_use(["cpu", "cpu", "cpu"])
    for d in devices:
        d.set_threads(8)
    assert [d.n_threads for d in devices] == [3, 3, 2]
    assert len({id(d.executor) for d in devices}) == 3
    alone: Any = devices_in_use("cpu")[0]
    assert alone is devices_in_use(["ref", "cpu"])[1]


@pytest.mark.parametrize("name", [KV, KIMI, "deepseek32-moe"])
def test_keys_of_shared_heads_may_be_on_the_host(name: str) -> None:
    """States stay where they are."""
    model = cached(name, (1, 1, 1))
    assert nmse(run(whole(name)), run(model, offload_kqv=False)) <= CLOSE
    memory = Context(model, **EXACT, offload_kqv=False).memory
    for kv in memory.caches.values():
        assert [*kv.memory_breakdown()] == ["cpu.3"]
    assert memory.recr is None or len(memory.recr.memory_breakdown()) == 3


def test_llama_cpps_name_of_the_mode() -> None:
    model = LoadedModel(None, ["cpu", "cpu"], split_mode="tensor")
    assert model.placement.split_mode == "graph"
    assert any(isinstance(x, SplitBlock) for x in collect_values(model.architecture))
