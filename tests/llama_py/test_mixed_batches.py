"""Batches that mix tokens and embeddings (llama_batch_ext)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dev import tiny_models as tiny
from ggml_py.backend import host_array
from ggml_py.errors import ContextError
from llama_py.batch import Batch
from llama_py.batch.splitter import BatchSplitter
from llama_py.context import Context
from llama_py.model import Model
from tests.support.graph_models import NAMES, continues, known
from tests.support.live_models import EXACT, changed, live, model_of, nmse
from tests.support.split_models import reads_mixed

IDS = [5, -1, -1, 7, 9, -1, 3]
POS = range(len(IDS))
# Sequences of the entries
TWO = [0, 1, 0, 0, 1, 1, 1]
MIXING = [name for name in NAMES if continues(name) and known(name).hparams.mixes_embd]


def embeddings(model: Model, n: int) -> NDArray[np.float32]:
    shape = n, model.hparams.n_embd_inp
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def part(ids: Sequence[int], rows: NDArray[np.float32], **fields: Any) -> Batch:
    """Return entries as a batch of tokens, of embeddings, or of both."""
    tokens = None if all(id < 0 for id in ids) else [*ids]
    return Batch(tokens, rows if -1 in ids else None, outputs=[True] * len(ids), **fields)


def alone(
    model: Model, seqs: Sequence[Sequence[int]], pos: Sequence[int], **options: Any
) -> NDArray[np.float32]:
    """Decode each run of tokens or embeddings in a separate batch. -> [entries, n_vocab]"""
    ctx, rows, found = Context(model, **{**EXACT, **options}), embeddings(model, 3), []
    for _, run in groupby(range(len(IDS)), lambda i: (IDS[i] < 0, tuple(seqs[i]))):
        ids, where = zip(*((IDS[i], i) for i in run), strict=True)
        first = IDS[: where[0]].count(-1)
        mine = rows[first : first + ids.count(-1)]
        at = [pos[i] for i in where]
        found.append(ctx.decode(part(ids, mine, pos=at, seq_ids=[seqs[i] for i in where])))
    return np.concatenate(found)


def together(
    model: Model, seqs: Sequence[Sequence[int]], pos: Sequence[int], **options: Any
) -> NDArray[np.float32]:
    ctx = Context(model, **{**EXACT, **options})
    return ctx.decode(part(IDS, embeddings(model, 3), pos=[*pos], seq_ids=seqs))


@pytest.mark.parametrize("name", MIXING)
def test_a_mixed_batch_equals_separate_batches(name: str) -> None:
    model, one = live(name, "cpu"), [(0,)] * len(IDS)
    if not reads_mixed(model):
        with pytest.raises(ContextError, match="positions of image embeddings are unknown"):
            together(model, one, POS)
        return
    expected = alone(model, one, POS)
    assert nmse(expected, together(model, one, POS)) < 1e-9
    assert nmse(expected, together(model, one, POS, n_ubatch=3)) < 1e-9


SEVERAL = ["llama-dense", "gemma4-shared", "qwen35-dense", "kimi-linear-moe", "mamba-dense"]


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("n_ubatch", [1, 2, 7])
def test_several_sequences(name: str, n_ubatch: int) -> None:
    model, seqs = live(name, "cpu"), [(s,) for s in TWO]
    pos = [TWO[:i].count(s) for i, s in enumerate(TWO)]
    expected = alone(model, seqs, pos, n_seq_max=2)
    for unified in (True, False):
        more: dict[str, Any] = {"n_seq_max": 2, "kv_unified": unified, "n_ubatch": n_ubatch}
        assert nmse(expected, together(model, seqs, pos, **more)) < 1e-9


def test_entries_that_sequences_share() -> None:
    model = live("llama-dense", "cpu")
    ids, seqs, pos = [5, -1, 7, 9, -1], [(0, 1), (0, 1), (0,), (1,), (1,)], [0, 1, 2, 2, 3]
    rows, options = embeddings(model, 2), {**EXACT, "n_seq_max": 2, "kv_unified": True}
    found = Context(model, **options).decode(part(ids, rows, pos=pos, seq_ids=seqs))
    for mine in ([0, 1, 2], [0, 1, 3, 4]):
        some = [ids[i] for i in mine]
        expected = Context(model, **EXACT).decode(part(some, rows[: some.count(-1)]))
        assert nmse(expected, found[mine]) < 1e-9


@pytest.mark.parametrize("name", ["llama-dense", "gemma3-dense", "granite-parts"])
def test_rows_of_the_table_equal_tokens(name: str) -> None:
    metadata, arrays = changed(name)
    table = arrays["token_embd.weight"][0, 0]
    scale = {"gemma3-dense": 8.0, "granite-parts": 1.5}.get(name, 1.0)
    model = model_of(metadata, arrays)
    rows = np.zeros((3, model.hparams.n_embd_inp), np.float32)
    rows[:, : table.shape[1]] = scale * table[[1, 2, 6]]
    expected = Context(model, **EXACT).decode([5, 1, 2, 7, 9, 6, 3], "all")
    assert nmse(expected, Context(model, **EXACT).decode(Batch(IDS, rows), "all")) < 1e-9


def test_an_encoder_reads_rows_of_the_table_like_tokens() -> None:
    metadata, arrays = changed("t5-dense")
    model, table = model_of(metadata, arrays), arrays["token_embd.weight"][0, 0]
    expected = Context(model, **EXACT).encode([5, 1, 2, 7, 9, 6, 3])
    found = Context(model, **EXACT).encode(Batch(IDS, np.ascontiguousarray(table[[1, 2, 6]])))
    assert nmse(expected, found) < 1e-9
    other = Context(model, **EXACT).encode(Batch(IDS, np.ascontiguousarray(table[[1, 2, 7]])))
    assert nmse(expected, other) > 1e-3


def test_positions_of_an_image_on_several_axes() -> None:
    model = live("qwen2vl-dense", "cpu")
    ids, rows = [5, -1, -1, -1, -1, 7, 9], embeddings(model, 4)
    image = [[1, 1, 1, 1], [1, 1, 2, 2], [1, 2, 1, 2], [0, 0, 0, 0]]
    ctx = Context(model, **EXACT)
    expected = np.concatenate(
        [
            ctx.decode([5]),
            ctx.decode(Batch(embd=rows, pos=np.array(image)), "all"),
            ctx.decode(Batch([7, 9], pos=[3, 4]), "all"),
        ]
    )
    pos = np.array([[0, *axis, 3, 4] for axis in image])
    for n_ubatch in (7, 2):
        found = Context(model, **{**EXACT, "n_ubatch": n_ubatch}).decode(
            Batch(ids, rows, pos), "all"
        )
        assert nmse(expected, found) < 1e-9


def test_a_graph_is_reused_for_other_entries() -> None:
    model = live("llama-dense", "cpu")
    ctx, rows = Context(model, **EXACT), embeddings(model, 4)
    first, second = Batch([5, -1, -1, 7], rows[:2]), Batch([-1, 3, 8, -1], rows[2:])
    ctx.decode(first, "all")
    built = len(ctx.runner.graphs)
    found = ctx.decode(second, "all")
    assert len(ctx.runner.graphs) == built
    ctx.clear()
    ctx.decode(first, "none")
    expected = [
        ctx.decode(Batch(embd=rows[2:3])),
        ctx.decode([3, 8], "all"),
        ctx.decode(Batch(embd=rows[3:])),
    ]
    assert nmse(np.concatenate(expected), found) < 1e-9


def test_batches_before_and_after_a_mixed_one() -> None:
    """Tokens with a row each (hidden states, which this model ignores) have another graph."""
    model = live("llama-dense", "cpu")
    rows, found = embeddings(model, 2), []
    for separate in (False, True):
        ctx = Context(model, **EXACT)
        ctx.decode(Batch([1, 2], rows), "all")
        if separate:
            ctx.decode([5])
            ctx.decode(Batch(embd=rows[:1]))
        else:
            ctx.decode(Batch([5, -1], rows[:1]), "all")
        after = [Batch([1, 2], rows, seq_ids=[(0,)] * 2), Batch([3, 4]), Batch([7])]
        found.append(np.concatenate([ctx.decode(batch, "all") for batch in after]))
    assert nmse(*found) < 1e-9


@pytest.mark.parametrize("order", ["tyxz", "zyxt"])
def test_axes_of_text_and_of_embeddings(order: str) -> None:
    metadata, arrays = changed("qwen2vl-dense")
    model = model_of(metadata | {"qwen2vl.rope.section_order": order}, arrays)
    ctx, graphs = Context(model, **EXACT), list[Any]()
    ctx.on_graph = lambda res, _: graphs.append(res)
    pos = np.array([[0, 1, 1, 2], [0, 1, 1, 2], [0, 1, 2, 2], [0, 3, 4, 2]])
    ctx.decode(Batch([5, -1, -1, 7], embeddings(model, 2), pos))
    (inp,) = {s for node in graphs[0].graph.nodes for s in node.src if s and s.name == "inp_pos"}
    found = host_array(inp).reshape(4, 4)
    swapped = order == "zyxt"
    assert found[0].tolist() == ([0, 3, 4, 2] if swapped else [0, 1, 1, 2])
    assert found[1:3].tolist() == [[0, 1, 1, 2], [0, 1, 2, 2]]
    assert found[3].tolist() == ([0, 1, 1, 0] if swapped else [0, 3, 4, 0])


def test_embeddings_alone_may_be_marked() -> None:
    model = live("llama-dense", "cpu")
    rows = embeddings(model, 2)
    expected = Context(model, **EXACT).decode(Batch(embd=rows), "all")
    assert np.array_equal(Context(model, **EXACT).decode(Batch([-1, -1], rows), "all"), expected)


def test_parts_of_one_kind_are_ordinary_ubatches() -> None:
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    splitter = BatchSplitter(Batch([5, 6, -1, -1, 7, 8], rows), n_vocab=10, n_embd=4, n_seq_max=1)
    found = [*iter(lambda: splitter.split_simple(2), None)]
    assert [u.token is None for u in found] == [False, True, False]
    assert [u.embd is None for u in found] == [True, False, True]
    assert not any(u.is_embd is not None for u in found)
    splitter.split_reset()
    (mixed,) = iter(lambda: splitter.split_simple(6), None)
    assert mixed.is_embd is not None and mixed.is_embd.tolist() == [0, 0, 1, 1, 0, 0]


WIDTH = 64


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (Batch([1, -1], np.zeros((2, WIDTH))), "embd must have shape [1, 64], a row for each"),
        (Batch([1, -1], np.zeros((1, 3))), "embd must have shape [1, 64], a row for each"),
        (Batch([1, -1]), "tokens[1] must be in [0, 64), got -1"),
        (Batch([1, -2, -1], np.zeros((1, WIDTH))), "tokens[1] must be in [-1, 64), got -2"),
        (Batch([1, -1], np.full((1, WIDTH), np.nan)), "embd must be finite"),
    ],
)
def test_malformed_batches(batch: Batch, message: str) -> None:
    ctx = Context(live("llama-dense"), **EXACT)
    with pytest.raises(ContextError, match=re.escape(message)):
        ctx.decode(batch)


@pytest.mark.parametrize("pos", [[0, 0, 1], [0, 1, 1]])
def test_positions_increase_next_to_tokens(pos: list[int]) -> None:
    model = live("qwen2vl-dense")
    with pytest.raises(ContextError, match="must increase before and after each token"):
        Context(model, **EXACT).decode(Batch([5, -1, 7], embeddings(model, 1), pos))


REFUSING = ("deepseek4", "graniteswitch", "cogvlm", "eagle3", "dflash", "gemma4-assistant")


def test_architectures_that_refuse_mixed_batches() -> None:
    """The same as in llama.cpp b11739: llm_arch_supports_mixed_batch."""
    from llama_py.models import architecture, known_architectures

    found = {arch for arch in known_architectures() if not architecture(arch).HParams.mixes_embd}
    assert found == {*REFUSING}


@pytest.mark.parametrize("name", ["deepseek4-moe", "graniteswitch-dense", "cogvlm-text"])
def test_the_error_names_the_architecture(name: str) -> None:
    model = live(name)
    with pytest.raises(ContextError, match=f"architecture '{model.arch}' .* separate batches"):
        Context(model, **EXACT).decode(Batch([5, -1], embeddings(model, 1)))


def test_hidden_states_are_not_mixed(tmp_path: Path) -> None:
    import llama_py

    path = tiny.write("qwen35", "mtp", tmp_path)
    model = llama_py.load(path, load_mtp=True)
    ctx = model.context(n_ctx=32, mtp=True)
    with pytest.raises(ContextError, match="pass a token id for each row"):
        ctx.decode(Batch([5, -1], embeddings(model, 1)))
