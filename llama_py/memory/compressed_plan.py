"""Rows of compressed keys that a ubatch's graph reads and writes
(llama-kv-cache-dsv4.cpp:dsv4_build_comp_plan)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llama_py.batch import I32, UBatch
from llama_py.memory.specs import CompressedSpec

N_KEYS_STEP = 256  # step of the number of keys for attention, which lets graphs be reused


@dataclass(frozen=True, slots=True)
class CompressedLayout:
    """Sizes of one type of compressed keys.

    n_keys    keys per sequence; n_stream  number of sequences
    n_rs_seq  number of earlier states next to the current one: `planes` 1, 2, ...
    """

    kept: CompressedSpec
    n_keys: int
    n_stream: int
    n_rs_seq: int

    @property
    def n_rows(self) -> int:
        """Number of rows of the current states of all sequences."""
        return self.kept.n_tokens * self.n_stream


@dataclass(frozen=True, slots=True)
class Plan:
    """Row numbers for a ubatch. In the graph, the rows are the current states [n_rows], then the
    ubatch's tokens, then one zero row.

    state_pos      index of each token among its key's tokens
    persist_src, persist_dst    tokens to store in the current states, and their rows
    restore_src, restore_dst    states of earlier tokens that replace the current states first
    snapshot_src, snapshot_dst  rows to store as states of earlier tokens; in [all planes, tokens]
    read      input rows of the new keys; with overlap the rows before a key's tokens come first
    write     rows of the new keys; write_pos  positions of their first tokens
    n_visible   number of visible keys per token
    n_kv      number of keys that attention reads
    """

    state_pos: I32
    persist_src: I32
    persist_dst: I32
    restore_src: I32
    restore_dst: I32
    snapshot_src: I32
    snapshot_dst: I32
    read: I32
    write: npt.NDArray[np.int64]
    write_pos: I32
    n_visible: I32
    n_kv: int

    @property
    def n_each(self) -> tuple[int, ...]:
        """Sizes of all index arrays, which the graph depends on."""
        return (
            self.state_pos.size,
            self.persist_src.size,
            self.restore_src.size,
            self.snapshot_src.size,
            self.read.size,
            self.write.size,
            self.n_visible.size,
            self.n_kv,
        )


class _Tokens:
    """Rows of a ubatch's tokens."""

    def __init__(self, ubatch: UBatch, sizes: CompressedLayout) -> None:
        self.sizes = sizes
        self.n = ubatch.n_tokens
        self.pos = [int(p) for p in ubatch.pos[: self.n]]
        self.seq = [ids[0] for ids in ubatch.seq_id]
        self._at = {key: i for i, key in enumerate(zip(self.seq, self.pos, strict=True))}

    def state_row(self, seq_id: int, pos: int) -> int:
        """Return the row of a position among the current states."""
        n = self.sizes.kept.n_tokens
        return seq_id * n + pos % n

    def row(self, seq_id: int, pos: int) -> int:
        """Return the row of a position in the tensor that the graph reads."""
        if pos < 0:
            return self.sizes.n_rows + self.n
        i = self._at.get((seq_id, pos))
        return self.state_row(seq_id, pos) if i is None else self.sizes.n_rows + i

    def find_sequence(self, seq_id: int) -> list[int]:
        return [i for i, s in enumerate(self.seq) if s == seq_id]


class _NewKeys:
    """The new keys of a ubatch."""

    def __init__(self, tokens: _Tokens) -> None:
        self.tokens, self.sizes = tokens, tokens.sizes
        self.before: list[int] = []
        self.own: list[int] = []
        self.write: list[int] = []
        self.write_pos: list[int] = []

    def add(self, seq_id: int, end: int) -> None:
        """Add the key of the tokens before position `end`."""
        kept, row = self.sizes.kept, self.tokens.row
        first = end - kept.ratio
        if kept.overlap:
            self.before += [row(seq_id, p) for p in range(first - kept.ratio, first)]
        self.own += [row(seq_id, p) for p in range(first, end)]
        self.write.append(seq_id * self.sizes.n_keys + first // kept.ratio)
        self.write_pos.append(first)

    def add_unseen(self, i: int) -> None:
        """Add an unused key of token i in the last row, so that the graph keeps its shape."""
        kept, seq_id = self.sizes.kept, self.tokens.seq[i]
        rows = [self.sizes.n_rows + i] * kept.ratio
        self.before += rows if kept.overlap else []
        self.own += rows
        self.write.append((seq_id + 1) * self.sizes.n_keys - 1)
        self.write_pos.append(0)


def make_plan(ubatch: UBatch, sizes: CompressedLayout, back: Mapping[int, int]) -> Plan:
    """Plan a ubatch. Each token belongs to one sequence; positions are consecutive.

    back  tokens rolled back before, by sequence: the plane of its state
    """
    tokens, kept = _Tokens(ubatch, sizes), sizes.kept
    made, persist = _NewKeys(tokens), dict[int, int]()
    for i, (seq_id, pos) in enumerate(zip(tokens.seq, tokens.pos, strict=True)):
        row = tokens.state_row(seq_id, pos)
        if row not in persist or pos > tokens.pos[persist[row]]:
            persist[row] = i
        if (pos + 1) % kept.ratio == 0:
            made.add(seq_id, pos + 1)
    _fill_up(ubatch, made)
    n_visible = np.array([(p + 1) // kept.ratio for p in tokens.pos], np.int32)
    n_kv = max(N_KEYS_STEP, -(-int(n_visible.max()) // N_KEYS_STEP) * N_KEYS_STEP)
    dst = sorted(persist)
    planes = _planes(tokens, back)
    return Plan(
        _i32([p % kept.ratio for p in tokens.pos]),
        _i32([persist[row] for row in dst]),
        _i32(dst),
        *planes,
        _i32(made.before + made.own),
        np.array(made.write, np.int64),
        _i32(made.write_pos),
        n_visible,
        n_kv,
    )


def _fill_up(ubatch: UBatch, made: _NewKeys) -> None:
    """Add unused keys: with overlap up to each sequence's maximum, else one if none is new."""
    kept, tokens = made.sizes.kept, made.tokens
    if not kept.overlap:
        if not made.write:
            made.add_unseen(0)
        return
    each = -(-max(1, ubatch.n_seq_tokens) // kept.ratio)
    for seq_id in ubatch.seq_id_unq:
        here = range(seq_id * made.sizes.n_keys, (seq_id + 1) * made.sizes.n_keys)
        if sum(row in here for row in made.write) < each:
            made.add_unseen(tokens.find_sequence(seq_id)[0])


def _planes(tokens: _Tokens, back: Mapping[int, int]) -> tuple[I32, I32, I32, I32]:
    """Return rows of states to restore and to snapshot; rows of other sequences map to
    themselves."""
    sizes, n = tokens.sizes, tokens.sizes.kept.n_tokens
    restore: list[tuple[int, int]] = []
    snapshot: list[tuple[int, int]] = []
    for stream in range(sizes.n_stream if sizes.n_rs_seq else 0):
        rows = range(stream * n, (stream + 1) * n)
        plane = back.get(stream, 0) * sizes.n_rows
        restore += [(plane + row, row) for row in rows]
        mine = tokens.find_sequence(stream)
        for d in range(1, sizes.n_rs_seq + 1):
            source = {row: row + (0 if mine else d * sizes.n_rows) for row in rows}
            for i in mine[: max(0, len(mine) - d)]:
                source[tokens.state_row(stream, tokens.pos[i])] = (
                    sizes.n_rows * (1 + sizes.n_rs_seq) + i
                )
            snapshot += [(source[row], d * sizes.n_rows + row) for row in rows]
    pairs = [np.array(x, np.int32).reshape(-1, 2) for x in (restore, snapshot)]
    return pairs[0][:, 0], pairs[0][:, 1], pairs[1][:, 0], pairs[1][:, 1]


def _i32(values: list[int]) -> I32:
    return np.array(values, np.int32)


def largest_plan(n_tokens: int, n_seqs: int, sizes: CompressedLayout) -> Plan:
    """Return the largest plan of `n_tokens` tokens (dsv4_build_reserve_comp_plan)."""
    kept = sizes.kept
    n_made = n_tokens // kept.ratio + max(1, n_seqs)
    each, keys = np.zeros(n_tokens, np.int32), np.zeros(n_made, np.int32)
    persist = each[: sizes.n_rows]
    restore = np.zeros(sizes.n_rows if sizes.n_rs_seq else 0, np.int32)
    snapshot = np.zeros(sizes.n_rows * sizes.n_rs_seq, np.int32)
    return Plan(
        state_pos=each,
        persist_src=persist,
        persist_dst=persist,
        restore_src=restore,
        restore_dst=restore,
        snapshot_src=snapshot,
        snapshot_dst=snapshot,
        read=np.zeros(kept.n_tokens * n_made, np.int32),
        write=keys.astype(np.int64),
        write_pos=keys,
        n_visible=each,
        n_kv=sizes.n_keys,
    )
