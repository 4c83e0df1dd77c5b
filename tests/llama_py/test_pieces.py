"""Shares of heads and channels, and the bytes of a tensor's parts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F32
from llama_py.gguf.file import TensorInfo
from llama_py.gguf.tensor_part import read_ranges
from llama_py.hparams.shard import Shard, apportion
from llama_py.loading.split.pieces import TensorPiece, list_ranges, why_not
from llama_py.memory.joined import cut, join


@pytest.mark.parametrize(
    ("n", "weights", "expected"),
    [
        (8, (1, 1), [4, 4]),
        (3, (1, 1), [2, 1]),
        (5, (3, 1), [4, 1]),
        (2, (1, 1, 1), [1, 1, 0]),
        (1, (1, 9), [0, 1]),
        (7, (2, 0, 5), [2, 0, 5]),
    ],
)
def test_things_are_shared_by_weight(
    n: int, weights: tuple[float, ...], expected: list[int]
) -> None:
    assert apportion(n, weights) == expected


@pytest.mark.parametrize(
    ("n", "width", "block", "expected"),
    [(6, 32, 1, [3, 3]), (6, 32, 64, [4, 2]), (6, 32, 256, [6, 6]), (1024, 1, 256, [512, 512])],
)
def test_heads_stay_together_in_whole_blocks(
    n: int, width: int, block: int, expected: list[int]
) -> None:
    shares = [Shard((1, 1), i, lambda _: block) for i in range(2)]
    assert [share.count_own(n, width, "attn_output", il=3) for share in shares] == expected
    idle = [share.knows(3, "attn_output")[0] for share in shares]
    assert idle == [False, expected == [6, 6]]


def test_parts_follow_one_another() -> None:
    shares = [Shard((2, 0, 1), i, lambda _: 32) for i in range(3)]
    # The second is idle.
    assert [share.count_own(192, 1, "down") for share in shares] == [128, 32, 64]
    assert [share.count_preceding(192, 1, "down") for share in shares] == [0, 128, 128]


def info(*ne: int, type: str = "f32") -> TensorInfo:
    t = BY_NAME[type]
    ne4 = (*ne, 1, 1, 1)[:4]
    size = t.row_size(ne4[0]) * ne4[1] * ne4[2] * ne4[3]
    data = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)
    return TensorInfo("w", t, ne4, 0, size, data)


def pieces(dim: int, *sections: tuple[int, ...]) -> list[TensorPiece]:
    return [TensorPiece(Tensor(F32, (sum(s), 2)), "w", dim, s) for s in sections]


def test_sections_are_each_cut() -> None:
    found = list_ranges(pieces(1, (2, 1, 3), (4, 1, 3)))
    assert found == [[(0, 2), (6, 7), (8, 11)], [(2, 6), (7, 8), (11, 14)]]


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("type", ["f32", "q8_0"])
def test_parts_are_what_the_file_has_there(type: str, dim: int) -> None:
    whole = info(64, 6, 4, type=type)
    row, blocks = whole.type.row_size(64), 64 // whole.type.block_size
    rows = whole.data.reshape(4, 6, blocks, row // blocks)
    ends = [0, 32, 64] if dim == 0 else [0, 1, whole.ne[dim]]
    scale = 1 if type == "f32" or dim else 32
    for a, b in pairwise(ends):
        index = [slice(None)] * 4
        index[2 - dim] = slice(a // scale, b // scale)
        expected = np.ascontiguousarray(rows[tuple(index)]).reshape(-1)
        np.testing.assert_array_equal(read_ranges(whole, dim, [(a, b)]), expected)
    at_ends = read_ranges(whole, dim, [(0, ends[1]), (ends[1], ends[2])])
    np.testing.assert_array_equal(at_ends, whole.data)


def test_rows_that_lie_together_are_not_copied() -> None:
    whole = info(64, 6)
    assert np.shares_memory(read_ranges(whole, 1, [(2, 5)]), whole.data)


def test_why_parts_do_not_fit() -> None:
    whole = info(64, 6, type="q8_0")
    assert why_not(pieces(0, (32,), (32,)), whole) == ""
    assert why_not(pieces(0, (48,), (16,)), whole) == (
        "a split would cut blocks of 32 elements of q8_0"
    )
    assert why_not(pieces(0, (32,), (16,)), whole) == (
        "the parts have 48 of 64 elements along dimension 0"
    )
    both = [*pieces(0, (32,)), *pieces(1, (3,))]
    assert why_not(both, whole) == "devices would split it differently"


def test_rows_of_states_are_joined_and_cut() -> None:
    row = np.arange(30, dtype=np.uint8)
    sections = [[4, 2, 0, 6], [8, 2, 5, 3]]
    parts = cut(row, sections)
    assert [part.tolist() for part in parts] == [
        [*range(4), 12, 13, *range(21, 27)],
        [*range(4, 12), *range(14, 21), *range(27, 30)],
    ]
    np.testing.assert_array_equal(join(parts, sections), row)
