"""LoRA adapters: what they change, for which sequence, from which token on, and where they are."""

from __future__ import annotations

import logging
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_py.backend.null import NullDevice
from ggml_py.errors import ContextError, GGUFError, WeightsError
from ggml_py.ops.registry import OPS
from ggml_py.types import BY_NAME, F16
from llama_py.adapters.lora import Adapter
from llama_py.batch import Batch
from llama_py.context import Context
from llama_py.loading.weight_users import find_weight_users
from llama_py.model import Model
from llama_py.weights.placement import Placement
from tests.support.adapters import TABLE, matrices, merged, pairs, write_adapter
from tests.support.devices import TestDevice
from tests.support.graph_models import NAMES, is_folded, load
from tests.support.live_models import (
    EXACT,
    PROMPT,
    Arrays,
    live,
    logits,
    made,
    model_of,
    nmse,
    tokens,
)

ALPHA, RANK, SCALE = 8.0, 4, 0.75
FULL = SCALE * ALPHA / RANK
Q8_0 = BY_NAME["q8_0"]
# Dense, tied and not, experts apart and joined, latent attention, every recurrent kind.
MODELS = [
    "llama-dense",
    "gpt-oss-moe",
    "qwen3moe-moe",
    "qwen35moe-moe",
    "kimi-linear-moe",
    "deepseek2-moe",
    "rwkv6-fused",
    "mamba-dense",
    "mamba2-dense",
    "gemma3n-few",
    "lfm2-dense",
]
OTHERS = ("llama-dense", "qwen35moe-moe")


def with_adapter(name: str, folder: Path, on: Any = "ref", **how: Any) -> tuple[Model, Adapter]:
    """A tiny model and an adapter of all its matrices."""
    metadata, arrays = made(name)
    model = live(name) if on == "ref" else model_of(metadata, arrays, on)
    changes = pairs(arrays, matrices(arrays), RANK, how.pop("seed", 0))
    file = write_adapter(folder / "a.gguf", model.arch, changes, alpha=ALPHA, **how)
    return model, model.load_adapter(file)


def context(model: Model, adapters: dict[Adapter, float] | None = None, **options: Any) -> Context:
    ctx = Context(model, **{**EXACT, **options})
    ctx.set_adapters(adapters)
    return ctx


@pytest.mark.parametrize("name", MODELS)
def test_an_adapter_is_the_change_of_the_weights(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metadata, arrays = made(name)
    changes = pairs(arrays, matrices(arrays), RANK)
    model = live(name)
    caplog.clear()  # warnings about the model
    with caplog.at_level(logging.WARNING, "llama_py"):
        adapter = model.load_adapter(
            write_adapter(tmp_path / "a", model.arch, changes, alpha=ALPHA)
        )
    assert caplog.messages == []
    expected = logits(model_of(metadata, merged(arrays, changes, FULL)))
    found = context(model, {adapter: SCALE}).decode(PROMPT, "all")
    assert nmse(expected, found) < 1e-9
    assert nmse(logits(model), found) > 1e-3


@pytest.mark.parametrize("name", [n for n in NAMES if not is_folded(n)])
def test_every_product_with_a_weight_takes_an_adapter(name: str) -> None:
    """A matrix that a graph multiplies with past the adapters is one too few."""
    model = load(name)
    architecture, all_weights = model.architecture, model._weights.all_tensors
    asked: set[str] = set()

    class Listening:
        def add_terms(self, res: Any, weight: Any, x: Any) -> Any:
            asked.add(weight.name)
            return res

        def add_to_experts(self, res: Any, weight: Any, x: Any, ids: Any, here: Any) -> Any:
            return self.add_terms(res, weight, x)

        add_to_rows = add_to_experts_rows = lambda self, rows, table, ids: self.add_terms(
            rows, table, ids
        )

    readers = find_weight_users(architecture, all_weights, Listening())  # type: ignore[arg-type]
    multiplied = {
        t.name
        for t in all_weights
        for node in readers[id(t)]
        if node.op in ("MUL_MAT", "MUL_MAT_ID") and node.src[0] is t
    }
    # one matrix for each head, or for some: LoRA has no form for these
    several = ("attn_k_b.weight", "attn_v_b.weight", "attn_output_a.weight")
    absorbed = {n for n in multiplied if n.endswith(several)}
    own = {n for n in multiplied if n.endswith((".lora_a", ".lora_b"))}  # adapters of the model's
    assert multiplied - absorbed - own - asked == set()


def test_several_adapters_add_up(tmp_path: Path) -> None:
    model, one = with_adapter("llama-dense", tmp_path)
    metadata, arrays = made("llama-dense")
    names = matrices(arrays)[:5]
    changes = pairs(arrays, names, 2, seed=5)
    other = model.load_adapter(write_adapter(tmp_path / "b", model.arch, changes, alpha=None))
    both = merged(arrays, pairs(arrays, matrices(arrays), RANK), FULL)
    expected = logits(model_of(metadata, merged(both, changes, -0.5)))
    found = context(model, {one: SCALE, other: -0.5}).decode(PROMPT, "all")
    assert nmse(expected, found) < 1e-9


@pytest.mark.parametrize("kind", [F16, Q8_0], ids=str)
def test_quantized_weights_and_adapters(kind: Any, tmp_path: Path) -> None:
    """The base stays as it is rounded; the adapter is rounded too."""
    name = "qwen35moe-moe"
    metadata, arrays = made(name)
    big = [n for n in matrices(arrays) if arrays[n].shape[-1] % 32 == 0 and n != TABLE]
    types = dict.fromkeys(big, kind)
    model = model_of(metadata, arrays, types=types)
    changes = pairs(arrays, big, 32)
    adapter = model.load_adapter(
        write_adapter(tmp_path / "a", model.arch, changes, alpha=ALPHA, type=kind)
    )
    plain = logits(model)
    found = context(model, {adapter: 1.0}).decode(PROMPT, "all")
    exact = merged(arrays, changes, ALPHA / 32)
    expected = logits(model_of(metadata, exact))
    assert nmse(expected, found) < (1e-4 if kind is F16 else 2e-2) < nmse(plain, found)


def test_the_head_is_not_changed_by_what_changes_tied_embeddings(tmp_path: Path) -> None:
    metadata, arrays = made("llama-dense")
    arrays = {n: a for n, a in arrays.items() if not n.startswith("output.")}
    changes = pairs(arrays, [TABLE], RANK)
    model = model_of(metadata, arrays)
    adapter = model.load_adapter(write_adapter(tmp_path / "a", model.arch, changes, alpha=ALPHA))
    untied = merged(arrays, changes, FULL) | {"output.weight": arrays[TABLE]}
    found = context(model, {adapter: SCALE}).decode(PROMPT, "all")
    assert nmse(logits(model_of(metadata, untied)), found) < 1e-9


@pytest.mark.parametrize("name", OTHERS)
def test_scale_zero_is_no_node(name: str, tmp_path: Path) -> None:
    model, adapter = with_adapter(name, tmp_path)
    ctx, seen = context(model), list[list[str]]()
    ctx.on_graph = lambda res, _: seen.append([t.op for t in res.graph.nodes])
    for adapters in (None, {adapter: 0.0}, {adapter: -0.0}, {adapter: 1e-3}):
        ctx.set_adapters(adapters)
        ctx.clear()
        ctx.decode(PROMPT)
    assert seen[0] == seen[1] == seen[2] and len(seen[3]) > len(seen[0])


def test_graphs_are_used_again(tmp_path: Path) -> None:
    """Adapters that come back find their graph; another scale is another graph."""
    model, adapter = with_adapter("llama-dense", tmp_path)
    ctx = context(model)
    used = []
    for adapters in (None, {adapter: 1.0}, None, {adapter: 1.0}, {adapter: 0.5}, {adapter: 1.0}):
        before = ctx.n_reused
        ctx.set_adapters(adapters)
        ctx.clear()
        ctx.decode(PROMPT)
        used.append(ctx.n_reused - before)
    assert used == [0, 0, 1, 1, 0, 1]


def each_alone(model: Model, texts: list[list[int]], adapters: list[Any]) -> list[NDArray[Any]]:
    return [
        context(model, chosen).decode(text, "all")
        for text, chosen in zip(texts, adapters, strict=True)
    ]


@pytest.mark.parametrize("name", ["llama-dense", "qwen35moe-moe", "mamba-dense", "gemma2-dense"])
@pytest.mark.parametrize("unified", [True, False], ids=["unified", "apart"])
def test_sequences_of_a_batch_have_their_own(name: str, unified: bool, tmp_path: Path) -> None:
    model, adapter = with_adapter(name, tmp_path)
    texts = [tokens(n, seed=n) for n in (7, 5, 9, 5)]
    adapters = [{adapter: 1.0}, {}, {adapter: -0.5}, {adapter: 1.0}]
    expected = each_alone(model, texts, adapters)
    ctx = Context(model, **EXACT, n_seq_max=4, kv_unified=unified)
    for s, chosen in enumerate(adapters):
        ctx.set_adapters(chosen, seq_id=s)
    order = [(s, i) for i in range(9) for s in range(4) if i < len(texts[s])]  # mixed
    batch = Batch([texts[s][i] for s, i in order], seq_ids=[(s,) for s, _ in order])
    n_graphs = list[int]()
    ctx.on_graph = lambda *_: n_graphs.append(1)
    found = ctx.decode(batch, "all")
    assert 3 <= len(n_graphs) <= 12  # two sequences share one
    rows = [np.array([found[k] for k, (t, _) in enumerate(order) if t == s]) for s in range(4)]
    for s in range(4):
        assert nmse(expected[s], rows[s]) < 1e-9
    # and each goes on with its own
    longer = each_alone(model, [[*t, 3] for t in texts], adapters)
    found = ctx.decode(Batch([3] * 4, seq_ids=[(s,) for s in range(4)]), "all")
    for s in range(4):
        assert nmse(longer[s][-1], found[s]) < 1e-9


def test_a_token_of_two_sequences_needs_equal_adapters(tmp_path: Path) -> None:
    model, adapter = with_adapter("llama-dense", tmp_path)
    ctx = Context(model, **EXACT, n_seq_max=3, kv_unified=True)
    ctx.set_adapters({adapter: 1.0}, seq_id=1)
    shared = Batch([1, 2], seq_ids=[(2,), (0, 1)])
    with pytest.raises(ContextError, match=r"token 1 belongs to sequences \[0, 1\], which use"):
        ctx.decode(shared)
    ctx.set_adapters({adapter: 1.0}, seq_id=0)
    assert ctx.decode(shared, "all").shape[0] == 2  # nothing was computed before


INVOKE = (7, 8, 9)


def by_hand(model: Model, adapter: Adapter, before: list[int], after: list[int]) -> Any:
    """Logits of two pieces, the second one's with the adapter."""
    plain = model.load_adapter(adapter.path)
    plain.invocation_tokens = ()
    ctx = context(model)
    first = ctx.decode(before, "all") if before else np.zeros((0, ctx.n_vocab), np.float32)
    ctx.set_adapters({plain: SCALE})
    return np.concatenate([first, ctx.decode(after, "all")] if after else [first])


@pytest.mark.parametrize("name", ["llama-dense", "qwen35moe-moe"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (tokens(6), [*INVOKE, 1, 2, 3]),
        ([], [*INVOKE, 1]),
        ([*INVOKE, 5, 5], [*INVOKE]),  # the last one counts
        ([7, 8, 1, 9, 7], []),
    ],
)
def test_an_activated_adapter(
    name: str, before: list[int], after: list[int], tmp_path: Path
) -> None:
    model, adapter = with_adapter(name, tmp_path, invocation=INVOKE)
    assert adapter.invocation_tokens == INVOKE
    ctx = context(model, {adapter: SCALE})
    found = ctx.decode([*before, *after], "all")
    assert nmse(by_hand(model, adapter, before, after), found) < 1e-9


@pytest.mark.parametrize("separate", [False, True], ids=["mixed", "separate"])
def test_an_embedding_interrupts_an_invocation(separate: bool, tmp_path: Path) -> None:
    model, adapter = with_adapter("llama-dense", tmp_path, invocation=INVOKE)
    rows = np.ones((1, model.hparams.n_embd), np.float32)
    batches = [Batch([7, 8, -1, 9, 4], rows)]
    if separate:
        batches = [Batch([7, 8]), Batch(embd=rows), Batch([9, 4])]

    def logits(ctx: Context) -> NDArray[Any]:
        return np.concatenate([ctx.decode(batch, "all") for batch in batches])

    ctx = context(model, {adapter: SCALE})
    assert nmse(logits(context(model)), logits(ctx)) < 1e-9
    plain = context(model)
    logits(plain)
    invoked = Batch([-1, *INVOKE], rows)
    assert nmse(plain.decode(invoked), ctx.decode(invoked)) > 1e-6


def test_an_invocation_in_pieces_and_taken_back(tmp_path: Path) -> None:
    model, adapter = with_adapter("llama-dense", tmp_path, invocation=INVOKE)
    ctx = context(model, {adapter: SCALE})
    ctx.decode([1, 2, 7])
    ctx.decode([8])
    found = ctx.decode([9, 4], "all")  # what was computed before stays as it is
    assert nmse(by_hand(model, adapter, [1, 2, 7, 8], [9, 4])[4:], found) < 1e-9
    later = ctx.decode([5, 6], "all")
    assert nmse(by_hand(model, adapter, [1, 2, 7, 8], [9, 4, 5, 6])[6:], later) < 1e-9
    ctx.memory.seq_rm(0, 4)  # the invocation is gone
    found = ctx.decode([4, 4], "all")
    assert nmse(context(model).decode([1, 2, 7, 8, 4, 4], "all")[4:], found) < 1e-9
    ctx.clear()
    assert nmse(context(model).decode([1, 9, 4], "all"), ctx.decode([1, 9, 4], "all")) < 1e-9


@pytest.mark.parametrize("unified", [True, False], ids=["unified", "apart"])
def test_activated_and_plain_adapters_of_several_sequences(unified: bool, tmp_path: Path) -> None:
    model, adapter = with_adapter("llama-dense", tmp_path, invocation=INVOKE)
    plain = model.load_adapter(adapter.path)
    plain.invocation_tokens = ()
    texts = [[*INVOKE, 6, 1, 2], [1, 2, *INVOKE, 4], [1, 2, 3, 4, 5, 6]]
    ctx = Context(model, **EXACT, n_seq_max=3, kv_unified=unified)
    for s, one in enumerate((adapter, adapter, plain)):
        ctx.set_adapters({one: SCALE}, seq_id=s)
    found = ctx.decode(
        Batch([*chain(*texts)], seq_ids=[(s,) for s in range(3) for _ in range(6)]), "all"
    )
    expected = [
        by_hand(model, adapter, [], texts[0]),
        by_hand(model, adapter, texts[1][:2], texts[1][2:]),
        by_hand(model, adapter, [], texts[2]),
    ]
    assert nmse(np.concatenate(expected), found) < 1e-9


@pytest.mark.parametrize("name", ["llama-dense", "qwen3moe-moe"])
def test_tensors_are_where_the_weight_is(name: str, tmp_path: Path) -> None:
    host = TestDevice("host")
    first, second = TestDevice("first", shares=(host,)), TestDevice("second", shares=(host,))
    place = Placement((first, second, host), 99, (), (1, 1))
    model, adapter = with_adapter(name, tmp_path, place)
    for weight, pair in adapter.pairs.items():
        (place,) = model._weights.places[weight]
        device = place.device
        for t in (pair.a, pair.b):
            assert t.buffer is not None and t.buffer.owner is device, t.name  # type: ignore[attr-defined]
    expected = context(live(name), {live(name).load_adapter(adapter.path): SCALE})
    found = context(model, {adapter: SCALE}).decode(PROMPT, "all")
    assert nmse(expected.decode(PROMPT, "all"), found) < 1e-10


def test_a_device_that_cannot_multiply_leaves_it_to_the_host(tmp_path: Path) -> None:
    class F32Only(TestDevice):
        def why_not(self, node: Any) -> str:
            wrong = any(s is not None and s.type is F16 for s in node.src) and "MUL_MAT" in node.op
            return "f32 only" if wrong else super().why_not(node)

    host = TestDevice("host")
    device = F32Only("gpu", shares=(host,))
    place = Placement((device, host), 99, (), ())
    model, adapter = with_adapter("llama-dense", tmp_path, place, type=F16)
    owners = {t.buffer.owner.name for t in adapter.tensors()}  # type: ignore[union-attr]
    assert owners == {"host"}
    assert np.isfinite(context(model, {adapter: SCALE}).decode(PROMPT)).all()


def changed_shape(arrays: Arrays, key: str, *shape: int) -> Arrays:
    return arrays | {key: np.zeros(shape, np.float32)}


Q = "blk.0.attn_q.weight"


def test_other_files_are_refused(tmp_path: Path) -> None:
    _, arrays = made("llama-dense")
    good = pairs(arrays, [Q, TABLE], RANK)
    n_in = arrays[Q].shape[1]
    cases: list[tuple[Arrays, dict[str, Any], type[Exception], str]] = [
        (
            good,
            {"keys": {"general.type": "model"}},
            GGUFError,
            "general.type must be 'adapter', got 'model'",
        ),
        (
            good,
            {"keys": {"general.type": None}},
            GGUFError,
            "general.type must be 'adapter', got missing",
        ),
        (good, {"keys": {"adapter.type": "dora"}}, GGUFError, "adapter.type must be .*got 'dora'"),
        (
            good,
            {"keys": {"general.architecture": "mamba"}},
            WeightsError,
            "architecture 'mamba' does not fit the model",
        ),
        (good, {"keys": {"general.architecture": None}}, GGUFError, "general.architecture"),
        (good, {"alpha": float("nan")}, GGUFError, "alpha must be a finite .* got nan"),
        (good, {"alpha": float("inf")}, GGUFError, "alpha must be .*got inf"),
        ({}, {}, GGUFError, r"no tensors NAME\.lora_a"),
        ({f"{Q}.lora_a": good[f"{Q}.lora_a"]}, {}, GGUFError, r"attn_q\.weight\.lora_b is missing"),
        (good | {"other": good[f"{Q}.lora_a"]}, {}, GGUFError, "unknown tensor 'other'"),
        (
            {
                "blk.7.x.weight.lora_a": np.zeros((4, 4), np.float32),
                "blk.7.x.weight.lora_b": np.zeros((4, 4), np.float32),
            },
            {},
            WeightsError,
            r"no weight 'blk\.7\.x\.weight'",
        ),
        (changed_shape(good, f"{Q}.lora_a", RANK, n_in + 1), {}, WeightsError, "does not fit"),
        (changed_shape(good, f"{Q}.lora_a", RANK + 1, n_in), {}, WeightsError, "does not fit"),
        (changed_shape(good, f"{Q}.lora_a", n_in, RANK), {}, WeightsError, "does not fit"),
        (changed_shape(good, f"{Q}.lora_a", 2, RANK, n_in), {}, WeightsError, "does not fit"),
        (changed_shape(good, f"{TABLE}.lora_a", RANK, 5), {}, WeightsError, "token_embd"),
    ]
    model = live("llama-dense")
    loaded = len(model.adapters)
    for number, (tensors, how, error, message) in enumerate(cases):
        file = write_adapter(tmp_path / f"{number}", "llama", tensors, **how)
        with pytest.raises(error, match=message):
            model.load_adapter(file)
    with pytest.raises(GGUFError):
        model.load_adapter(tmp_path / "none")
    raw = (write_adapter(tmp_path / "x", "llama", good)).read_bytes()
    for cut in (0, 3, 30, len(raw) // 2, len(raw) - 1):
        (tmp_path / "x").write_bytes(raw[:cut])
        with pytest.raises(GGUFError):
            model.load_adapter(tmp_path / "x")
    assert len(model.adapters) == loaded


def test_an_adapter_of_a_type_that_no_device_multiplies_is_refused(tmp_path: Path) -> None:
    _, arrays = made("llama-dense")
    tensors = {name: x.astype(np.float64) for name, x in pairs(arrays, [Q], RANK).items()}
    file = write_adapter(tmp_path / "wide", "llama", tensors)
    model = model_of(*made("llama-dense"), on="cpu")
    with pytest.raises(WeightsError, match="of type f64 cannot be used on cpu"):
        model.load_adapter(file)
    assert not model.adapters


def test_tensors_that_do_nothing_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, arrays = made("deepseek2-moe")
    name = next(n for n in arrays if n.endswith("attn_k_b.weight"))
    norms = {"blk.0.attn_norm.weight": np.zeros(4, np.float32)}
    file = write_adapter(tmp_path / "a", "deepseek2", pairs(arrays, [name]) | norms)
    with caplog.at_level(logging.WARNING, "llama_py"):
        load("deepseek2-moe").load_adapter(file)
    norm, unused = caplog.messages
    assert "norms cannot have an adapter, so tensor 'blk.0.attn_norm.weight' is ignored" in norm
    assert f"the model does not use these tensors: {name}.lora_a" in unused


def test_bad_requests(tmp_path: Path) -> None:
    model, adapter = with_adapter("llama-dense", tmp_path)
    ctx = context(model)
    for scale in (float("nan"), float("inf")):
        with pytest.raises(ContextError, match="must be finite"):
            ctx.set_adapters({adapter: scale})
    for seq_id in (-1, 1):
        with pytest.raises(ContextError, match=r"seq_id must be in \[0, 1\), got -?1"):
            ctx.set_adapters({adapter: 1.0}, seq_id=seq_id)
    with pytest.raises(ContextError, match="belongs to another model"):
        Context(load("llama-dense"), n_ctx=64).set_adapters({adapter: 1.0})


def test_a_null_device_takes_adapters(tmp_path: Path) -> None:
    """Graphs with adapters can be looked at without computing."""
    _, arrays = made("llama-dense")
    model = load("llama-dense")
    file = write_adapter(tmp_path / "a", model.arch, pairs(arrays, matrices(arrays)))
    ctx = Context(model, n_ctx=64)
    ctx.set_adapters({model.load_adapter(file): 1.0})
    ops = list[str]()
    ctx.on_graph = lambda res, _: ops.extend(t.op for t in res.graph.nodes)
    ctx.decode([1, 2])
    assert isinstance(model.devices[0], NullDevice) and set(ops) <= set(OPS)
    assert ops.count("SCALE") >= len(matrices(arrays))
