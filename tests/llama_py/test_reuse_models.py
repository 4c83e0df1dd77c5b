"""What models compute with reused states is what they compute afresh, for every kind of memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ggml_py.errors import ContextError
from llama_py.adapters.lora import Adapter
from llama_py.context import Context
from llama_py.decoding.prefix import Prefix
from llama_py.decoding.prefix_cache import PrefixCache, PrefixMatch, load_slot, save_slot
from tests.support.adapters import matrices, pairs, write_adapter
from tests.support.live_models import EXACT, live, made, model_of, nmse, tokens

# keys and values; windows; keys of an indexer; states; both; both in one layer; states and windows
MODELS = [
    "llama-dense",
    "gemma3-dense",
    "deepseek32-moe",
    "mamba2-dense",
    "qwen3next-moe",
    "kimi-linear-moe",
    "falcon-h1-dense",
    "lfm2-window",
]
STEP, TEXT = 4, tokens(22)
NAN = 0xFF  # these bytes are NaN in every type; without flash attention all cells are read


def context(name: str, fill: int, **options: Any) -> Context:
    """Whose memory holds what an earlier owner of it left."""
    how = {**EXACT, "n_ctx": 512, "n_seq_max": 2, "checkpoint_min_step": STEP, **options}
    ctx = Context(live(name), **how)
    for part in ctx.memory.parts:
        for _, buffer in part.buffers:
            buffer.clear(fill)
    return ctx


def ask(ctx: Context, ids: list[int], seq_id: int = 0) -> PrefixMatch:
    """Compute a prompt; its logits are those of a fresh context."""
    p = Prefix(ctx, seq_id)
    rest = p.start(ids)
    found = PrefixCache.for_context(ctx).decode(rest, seq_id)
    p.add(rest)
    assert p.tokens == ids and p.last_match is not None
    fresh = Context(ctx.model, **EXACT | {"flash_attn": ctx.params.flash_attn})
    assert nmse(fresh.decode(ids), found) < 1e-9
    return p.last_match


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize(
    ("name", "fill", "flash_attn"),
    [(name, 0x3E, "off") for name in MODELS]
    + [(name, NAN, "on") for name in MODELS if name != "deepseek32-moe"],  # scores all cells
)
def test_logits_are_those_of_a_fresh_context(
    name: str, fill: int, flash_attn: str, unified: bool
) -> None:
    ctx = context(name, fill, flash_attn=flash_attn, kv_unified=unified)
    ask(ctx, TEXT[:18])
    edited, again = ask(ctx, [*TEXT[:14], *tokens(3, 5)]), ask(ctx, TEXT[:14])
    others = ask(ctx, [*TEXT[:11], 1], seq_id=1)
    assert [t.n_same for t in (edited, again, others)] == [14, 13, 11]
    for told in (edited, again, others):
        assert told.n_same - told.n_reused < (STEP if told.stateful else 1)
    PrefixCache.for_context(ctx).offload(0)
    told = ask(ctx, TEXT[:20])
    assert told.n_reused >= 14 and told.source == "host memory"
    assert ask(ctx, [*TEXT[:11], 1, 2], seq_id=1).n_computed == 1  # the other is as it was


@pytest.mark.parametrize("name", ["gemma3-dense", "kimi-linear-moe"])
def test_another_steering_is_another_computation(name: str) -> None:
    ctx = context(name, 0)
    ask(ctx, TEXT)
    n_embd = ctx.model.hparams.n_embd
    ctx.set_control_vector(np.ones((1, n_embd), np.float32))
    assert Prefix(ctx).start(TEXT) == TEXT
    ctx.set_control_vector(None)
    assert ask(ctx, TEXT).n_reused == 0


def write_adapter_of(name: str, folder: Path, **how: Any) -> Adapter:
    arrays = made(name)[1]
    changes = pairs(arrays, matrices(arrays), 4, 0)
    model = live(name)
    return model.load_adapter(write_adapter(folder / "a.gguf", model.arch, changes, **how))


@pytest.mark.parametrize("name", ["llama-dense", "qwen35moe-moe"])
def test_tokens_of_another_adapter_are_others(name: str, tmp_path: Path) -> None:
    adapter = write_adapter_of(name, tmp_path, alpha=8.0)
    ctx = context(name, 0x3E, kv_unified=True)
    ask(ctx, TEXT)
    ctx.set_adapters({adapter: 0.75}, seq_id=1)
    assert Prefix(ctx, 1).start(TEXT) == TEXT
    found = PrefixCache.for_context(ctx).decode(TEXT, 1)
    alone = Context(ctx.model, **EXACT)
    alone.set_adapters({adapter: 0.75})
    assert (
        nmse(alone.decode(TEXT), found)
        < 1e-9
        < 1e-4
        < nmse(Context(ctx.model, **EXACT).decode(TEXT), found)
    )
    assert ask(ctx, [*TEXT, 1]).n_computed == 1
    with pytest.raises(ContextError, match=r"computed with .*Adapter.* uses \(Loras\(used=\(\)"):
        save_slot(PrefixCache.for_context(ctx), tmp_path / "slot", 1)
        load_slot(PrefixCache.for_context(ctx), tmp_path / "slot", 0)
    ctx.set_adapters(None, seq_id=1)  # what is in memory is still the adapter's
    assert ask(ctx, TEXT, 1).source == "sequence 0"


def test_an_activated_adapter_computes_everything(tmp_path: Path) -> None:
    """Where it begins to work depends on how tokens come in batches."""
    adapter = write_adapter_of("qwen35moe-moe", tmp_path, alpha=8.0, invocation=(7, 8, 9))
    ctx = context("qwen35moe-moe", 0x3E)
    ctx.set_adapters({adapter: 0.75})
    ids = [*TEXT[:5], 7, 8, 9, *TEXT[5:]]
    alone = Context(ctx.model, **EXACT)
    alone.set_adapters({adapter: 0.75})
    expected = alone.decode(ids)
    for _ in range(2):
        assert Prefix(ctx).start(ids) == ids
        assert nmse(expected, PrefixCache.for_context(ctx).decode(ids)) < 1e-9


@pytest.mark.parametrize("name", MODELS)
def test_a_larger_context_takes_over(name: str) -> None:
    small, large = context(name, 0x3E), context(name, 0x3E, n_ctx=1024)
    ask(small, TEXT[:18])
    ask(small, TEXT[:7], seq_id=1)
    PrefixCache.for_context(large).transfer_from(PrefixCache.for_context(small))
    assert ask(large, TEXT).n_computed == 4
    told = ask(large, [*TEXT[:14], 1], seq_id=1)
    assert told.n_same - told.n_reused < STEP


@pytest.mark.parametrize("name", MODELS)
def test_a_sequence_in_a_file(name: str, tmp_path: Path) -> None:
    """It can go on, and back to its snapshots, in another sequence of another context."""
    ctx, other = context(name, 0x3E), context(name, 0x3E, kv_unified=True)
    ask(ctx, TEXT[:18])
    size = save_slot(PrefixCache.for_context(ctx), tmp_path / "slot")
    assert (tmp_path / "slot").stat().st_size == size
    assert load_slot(PrefixCache.for_context(other), tmp_path / "slot", seq_id=1) == TEXT[:18]
    assert ask(other, TEXT, seq_id=1).n_computed == 4
    told = ask(other, [*TEXT[:14], 1])
    assert told.source == "sequence 1" and told.n_same - told.n_reused < STEP


def test_files_that_are_refused(tmp_path: Path) -> None:
    ctx, path = context("qwen3next-moe", 0), tmp_path / "slot"
    ask(ctx, TEXT[:9])
    save_slot(PrefixCache.for_context(ctx), path)
    good, held = path.read_bytes(), PrefixCache.for_context(ctx).tokens(0)
    weights = made("qwen3next-moe")
    next(iter(weights[1].values())).reshape(-1)[0] += 1
    trained_on = Context(model_of(*weights), **EXACT)
    other = context("kimi-linear-moe", 0)
    f16 = context("qwen3next-moe", 0, type_k="f16", type_v="f16")
    for into, data, message in (
        (ctx, good[:-3], "slot: the state is damaged or truncated"),
        (ctx, good[:99] + bytes([good[99] ^ 1]) + good[100:], "slot: the state is damaged"),
        (ctx, b"", "slot: not a saved state: it has only 0 bytes"),
        (ctx, ctx.save_state(0), "contains a state of one sequence, expected a saved sequence"),
        (other, good, r"belongs to another model \(qwen3next, not kimi-linear\): its fingerprint"),
        (trained_on, good, "slot: saved sequence belongs to another model: its fingerprint"),
        (f16, good, "has layout .*kv f32 f32.*needs .*kv f16 f16"),
    ):
        path.write_bytes(data)
        with pytest.raises(ContextError, match=message):
            load_slot(PrefixCache.for_context(into), path)
    assert PrefixCache.for_context(ctx).tokens(0) == held and ask(ctx, [*held, 1]).n_computed == 1
    path.write_bytes(good)
    assert load_slot(PrefixCache.for_context(ctx), path) == held


def test_a_sequence_that_is_not_known_is_not_saved(tmp_path: Path) -> None:
    ctx = context("llama-dense", 0)
    ask(ctx, TEXT[:5])
    ctx.decode([1, 2])
    with pytest.raises(
        ContextError, match="sequence 0 cannot be saved: only 5 of its 7 tokens are known"
    ):
        save_slot(PrefixCache.for_context(ctx), tmp_path / "slot")
    assert not [*tmp_path.iterdir()]


def test_an_interrupted_prompt_leaves_what_was_computed() -> None:
    ctx = context("qwen3next-moe", 0x3E)
    n = 0

    def stop(*_: object) -> None:
        nonlocal n
        n += 1
        if n == 3:
            raise KeyboardInterrupt

    ctx.on_graph = stop
    PrefixCache.for_context(ctx).start(TEXT)
    with pytest.raises(KeyboardInterrupt):
        PrefixCache.for_context(ctx).decode(TEXT)
    ctx.on_graph = None
    assert ctx.memory.seq_pos_max(0) == -1  # the state was being written
    ask(ctx, TEXT)
