"""Attention to chosen blocks of positions, and embeddings of n-grams: the same however tokens come,
and whoever shares cells; inputs against plain loops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from dev import tiny_models as tiny
from ggml_py.errors import ContextError, HParamsError
from llama_py.batch import Batch
from llama_py.graph.inputs.ngrams import MISSING, Hashes
from llama_py.graph.inputs.pooled_blocks import build_blocks
from llama_py.memory.cells import KVCells
from llama_py.memory.kpool import OrderedPools
from llama_py.memory.line import Line
from tests.support.live_models import nmse, tokens

ARCH = "qwen4exp"
EXACT: dict[str, Any] = {"flash_attn": "off", "type_k": "f32", "type_v": "f32"}
N = 30


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Blocks of 4 positions, of which a token attends to two."""
    found = tiny.find(ARCH, "ngrams")
    found = replace(found, keys={**found.keys, "attention.indexer.top_k": 8})
    folder: Path = tmp_path_factory.mktemp("models")
    return llama_py.load(str(tiny.write_file(folder / "model.gguf", ARCH, found)))


@pytest.fixture(scope="module")
def expected(model: Any) -> Any:
    return model.context(**EXACT).decode(tokens(N), logits="all")


def context(model: Any, **how: Any) -> Any:
    return model.context(**{**EXACT, **how})


def test_fewer_blocks_than_there_are_count(model: Any, expected: Any, tmp_path: Path) -> None:
    found = tiny.find(ARCH, "ngrams")
    path = tiny.write_file(tmp_path / "all.gguf", ARCH, found)
    all_seen = llama_py.load(str(path)).context(**EXACT).decode(tokens(N), logits="all")
    assert nmse(all_seen[:11], expected[:11]) <= 1e-12  # 8 cells, and 3 after the last block
    assert nmse(all_seen[12:], expected[12:]) > 1e-4


def test_blocks_are_no_larger_than_a_graph_can_be(tmp_path: Path) -> None:
    """It has a node for each position of a block."""
    found = tiny.find(ARCH, "ngrams")
    keys = {**found.keys, "attention.compress_ratios": [0, 2**32 - 2]}
    with pytest.raises(HParamsError, match=r"compress_ratios items must each be at most 1024"):
        tiny.write_file(tmp_path / "m.gguf", ARCH, replace(found, keys=keys))


@pytest.mark.parametrize("n_ubatch", [1, 3, 7])
def test_any_split(model: Any, expected: Any, n_ubatch: int) -> None:
    found = context(model, n_ubatch=n_ubatch).decode(tokens(N), logits="all")
    assert nmse(expected, found) <= 1e-9


def test_a_prefix_that_sequences_share(model: Any, expected: Any) -> None:
    """The shared part ends within a block; both go on in one batch."""
    ctx = context(model, n_seq_max=2, kv_unified=True)
    ids, n = tokens(N), 10
    other = tokens(N - n, 5)
    ctx.decode(ids[:n])
    ctx.memory.seq_cp(0, 1)
    rest = [*ids[n:], *other]
    where = [*range(n, N), *range(n, N)]
    found = ctx.decode(
        Batch(rest, pos=where, seq_ids=[(0,)] * (N - n) + [(1,)] * (N - n)), logits="all"
    )
    assert nmse(expected[n:], found[: N - n]) <= 1e-9
    alone = context(model).decode([*ids[:n], *other], logits="all")
    assert nmse(alone[n:], found[N - n :]) <= 1e-9


@pytest.mark.parametrize("unified", [True, False])
def test_sequences_side_by_side(model: Any, expected: Any, unified: bool) -> None:
    ctx = context(model, n_seq_max=2, kv_unified=unified)
    other = tokens(N - 6, 5)
    both = [*tokens(N), *other]
    seq_ids = [(0,)] * N + [(1,)] * len(other)
    found = ctx.decode(Batch(both, seq_ids=seq_ids), logits="all")
    assert nmse(expected, found[:N]) <= 1e-9
    assert nmse(context(model).decode(other, logits="all"), found[N:]) <= 1e-9


def test_a_state_that_is_read_back(model: Any, expected: Any) -> None:
    """Into other cells, behind those of another sequence."""
    ctx, n = context(model), 17
    ctx.decode(tokens(n))
    state = ctx.save_state(0)
    other = context(model, n_seq_max=2, kv_unified=True)
    other.decode(tokens(9, 3))
    other.load_state(state, 1)
    found = other.decode(Batch(tokens(N)[n:], seq_ids=[(1,)] * (N - n)), logits="all")
    assert nmse(expected[n:], found) <= 1e-9


def test_tokens_taken_back(model: Any, expected: Any) -> None:
    ctx = context(model, n_rs_seq=4)
    ctx.decode(tokens(14))
    ctx.decode([*tokens(15)[14:], 1, 2, 3])
    assert ctx.memory.seq_rm(0, 15)
    assert nmse(expected[15:], ctx.decode(tokens(N)[15:], logits="all")) <= 1e-9


def test_tokens_of_several_sequences_are_refused(model: Any) -> None:
    ctx = context(model, n_seq_max=2, kv_unified=True)
    with pytest.raises(ContextError, match="seq_cp"):
        ctx.decode(Batch([1, 2], seq_ids=[(0, 1)] * 2))


# ---- inputs


def test_blocks_of_scattered_cells() -> None:
    """Two sequences, positions in no order, one of them missing."""
    cells, rng = KVCells(64, 2), np.random.default_rng(1)
    places = rng.permutation(64)
    for seq, pos in ((0, [*range(3), *range(4, 21)]), (1, range(5, 18))):
        for p in pos:
            cells.place(places[:1], np.array([p], np.int32), [(seq, slice(0, 1))])
            places = places[1:]
    lines = [Line(cells, seq, 64) for seq in (0, 1)]
    found = build_blocks(lines, 4, 64)
    by_place = {(s, int(cells.pos[c])): c for s in (0, 1) for c in np.flatnonzero(cells.seq[s])}
    wanted = [
        (s, p)
        for s in (0, 1)
        for p in range(0, 24, 4)
        if all((s, p + i) in by_place for i in range(4))
    ]
    assert [*zip(found.owner.tolist(), found.first.tolist(), strict=True)] == wanted
    for n, (s, p) in enumerate(wanted):
        assert found.pos[:, n].tolist() == [p] * 4
        assert found.cells[n].tolist() == [by_place[s, p + i] for i in range(4)]
    of = {c: n for n, row in enumerate(found.cells.tolist()) for c in row}
    assert found.of.tolist() == [of.get(c, -1) for c in range(64)]


def line_of_an_image() -> Line:
    """Four patches of one position, between tokens."""
    cells = KVCells(16, 1, with_xy=True)
    pos = np.array([0, 1, 2, 2, 2, 2, 4, 5], np.int32)
    cells.place(np.arange(8), pos, [(0, slice(0, 8))])
    assert cells.xy is not None
    cells.xy[:, :8] = [[0, 1, 3, 2, 3, 2, 4, 5], [0, 1, 3, 2, 2, 3, 4, 5]]  # columns, rows
    return Line(cells, 0, 16)


def test_blocks_of_an_image() -> None:
    """Its patches have one position, and are ranked by row and column."""
    line = line_of_an_image()
    assert line.cells.tolist() == [0, 1, 3, 4, 5, 2, 6, 7]
    found = build_blocks([line], 4, 16)
    assert found.cells.tolist() == [[0, 1, 3, 4], [5, 2, 6, 7]]
    assert found.pos.T.tolist() == [[0, 0, 0, 0], [2, 3, 2, 2]]  # time, row, column, time
    token = np.array([[2, 5], [2, 5], [3, 5], [2, 5]], np.int32)
    assert line.find_places(token).tolist() == [3, 7]


def test_pools_of_an_image() -> None:
    """A patch sees pools that end at it or before; the rest of what it sees is its tail."""
    line = line_of_an_image()
    assert line.keys is not None
    found = OrderedPools(0, line.keys[0].astype(np.int32), line.cells, np.array([0, 4]), line)
    assert found.members(4).tolist() == [[0, 1, 3, 4], [5, 2, 6, 7]]
    assert found.first_positions().T.tolist() == [[0, 0, 0, 0], [2, 3, 2, 2]]
    tokens = np.array([[2, 2, 5], [2, 3, 5], [3, 2, 5], [0, 0, 0]], np.int32)  # cells 4, 5, 7
    assert found.find_pools(tokens, 4).tolist() == [0, 1, 1]
    assert found.count_seen(tokens, 4).tolist() == [1, 1, 2]
    tails, there = found.find_tails(tokens, 4)
    assert there.tolist() == [[False] * 3, [True, False, False], [False] * 3]
    assert tails[1, 0] == 5


def test_pools_after_a_gap() -> None:
    """Tokens count, not positions."""
    cells = KVCells(16, 1)
    cells.place(np.arange(6), np.array([0, 1, 2, 5, 6, 9], np.int32), [(0, slice(0, 6))])
    line = Line(cells, 0, 16)
    found = OrderedPools(0, line.places.astype(np.int32), line.cells, np.array([0, 4]), line)
    pos = np.array([[5, 9]], np.int32)
    assert found.count_seen(pos, 4).tolist() == [1, 1]
    assert found.find_tails(pos, 4)[1].sum(1).tolist() == [0, 2]


@pytest.mark.parametrize("n_ubatch", [4, 7])
def test_an_image_in_any_split(n_ubatch: int, tmp_path: Path) -> None:
    path = tiny.write(ARCH, "blocks", tmp_path)
    found = [read_image(llama_py.load(str(path)), n) for n in (64, n_ubatch)]
    assert nmse(*found) <= 1e-9


def read_image(model: Any, n_ubatch: int) -> Any:
    """Logits of a text, an image of 3 x 3 patches, and a text."""
    ctx, i = context(model, n_ubatch=n_ubatch), np.arange(9)
    pos = np.stack([np.full(9, 10), 10 + i // 3, 10 + i % 3, np.zeros(9, int)]).astype(np.int32)
    rows = np.random.default_rng(1).standard_normal((9, 64)).astype(np.float32)
    parts = tokens(10), Batch(None, rows, pos), Batch(tokens(9, 1), pos=[*range(13, 22)])
    return np.concatenate([ctx.decode(part, logits="all") for part in parts])


def test_rows_of_ngrams() -> None:
    hashes = Hashes(3, 2, (3, 2**63 + 1, 7), (0, 10, 20, 31), (10, 10, 11, 13), 5, 9)
    ids = np.array([[1, 2, 3], [1, 5, 3], [5, 1, MISSING], [-1, 4, -1]])
    for row, (a, b, c) in zip(
        hashes.rows(ids), [(1, 2, 3), (1, 5, 5), (5, 1, 5), (9, 4, 9)], strict=True
    ):
        two = (a * 3) ^ (b * (2**63 + 1) % 2**64)
        three = two ^ (c * 7)
        assert row.tolist() == [two % 10, 10 + two % 10, 20 + three % 11, 31 + three % 13]
