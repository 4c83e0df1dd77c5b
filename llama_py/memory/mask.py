"""Attention masks: the cells that each token may attend to (llama_kv_cache::set_input_kq_mask)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from llama_py.batch import I32, UBatch
from llama_py.hparams.layer_shape import Window
from llama_py.memory.cells import Bools, KVCells

# -inf as bits; shown cells are 0, so that a mask is (hidden * bits)
_HIDE_F16 = np.uint16(0xFC00)
_HIDE_F32 = np.uint32(0xFF800000)


@dataclass(frozen=True, slots=True)
class MaskRule:
    """Rule that hides cells of a token's sequence: later positions, and those outside a window.

    alibi  visible cells get -distance, which each head scales, instead of 0
    spans  a window does not hide tokens of the same ubatch
    """

    causal: bool
    window: Window | None
    alibi: bool = False
    spans: bool = False

    def visible(self, cells: KVCells, which: Any, ubatch: UBatch, token: Any) -> Bools:
        """Return True for cells `which` that `token` (an index, or indices [n, 1]) may see."""
        p0 = cells.pos[which]
        p1 = ubatch.pos[token]
        seen = p0 <= p1 if self.causal else np.broadcast_to(True, np.broadcast(p0, p1).shape)
        if self.causal and ubatch.has_embd and cells.xy is not None:
            n = ubatch.n_tokens
            seen = seen & ~((p0 == p1) & _is_after(cells.xy[:, which], ubatch.pos, token, n))
        if self.window is not None:
            hidden = self.window.hides(p0, p1)
            if self.spans:
                hidden = hidden & (p0 < _begin(ubatch, token))
            seen = seen & ~hidden
        return np.asarray(seen)


def _begin(ubatch: UBatch, token: Any) -> int:
    """Return the first position in the ubatch of the tokens' sequence, which all tokens share."""
    seq_id = ubatch.seq_id[int(np.ravel(token)[0])][0]
    return int(ubatch.pos[: ubatch.n_tokens][dict(ubatch.by_seq())[seq_id]].min())


def _is_after(xy: I32, pos: I32, token: Any, n: int) -> Bools:
    """Return True for image patches after the token's patch in reading order (is_2d_gt)."""
    x, y = pos[token + 2 * n], pos[token + n]
    return np.asarray((xy[1] > y) | ((xy[1] == y) & (xy[0] > x)))


def kq_mask(
    rule: MaskRule, f16: bool, n_kv: int, ubatch: UBatch, streams: list[KVCells]
) -> npt.NDArray[Any]:
    """Return the mask [n_stream, n_tokens / n_stream, n_kv] as bits: 0 (or -distance) for visible
    cells, else -inf.

    streams   cells for the ubatch's tokens, one entry per equal part of the ubatch
    """
    hide = _HIDE_F16 if f16 else _HIDE_F32
    per_stream = ubatch.n_tokens // len(streams)
    mask = np.empty((ubatch.n_tokens, n_kv), hide.dtype)
    for i, cells in enumerate(streams):
        part = range(i * per_stream, (i + 1) * per_stream)
        for seq_id, tokens in _by_first_seq(ubatch, part):
            if rule.alibi:
                _fill_distances(mask, rule, cells, seq_id, ubatch, tokens)
            else:
                _fill(mask, rule, hide, cells, seq_id, ubatch, tokens)
    return mask.reshape(len(streams), per_stream, n_kv)


def ubatch_mask(ubatch: UBatch, rule: MaskRule, f16: bool, n_kv: int) -> npt.NDArray[Any]:
    """Return the mask [n_tokens, n_kv] of tokens of a ubatch as bits: 0 (or -distance) for visible
    tokens, else -inf, also for padding after them (llm_graph_input_attn_no_cache::set_input)."""
    hide = _HIDE_F16 if f16 else _HIDE_F32
    pos = ubatch.pos[: ubatch.n_tokens]
    first = np.array([ids[0] for ids in ubatch.seq_id])
    p0, p1 = pos[None, :], pos[:, None]
    hidden = first[None, :] != first[:, None]
    if rule.causal:
        hidden = hidden | (p0 > p1)
    if rule.window is not None:
        hidden = hidden | rule.window.hides(p0, p1)
    mask = _distances(~hidden, p0, p1, hide.dtype) if rule.alibi else np.asarray(hidden * hide)
    rest = n_kv - ubatch.n_tokens
    return np.pad(mask, ((0, 0), (0, rest)), constant_values=hide) if rest else mask


def _by_first_seq(ubatch: UBatch, part: range) -> list[tuple[int, npt.NDArray[np.intp]]]:
    if len(ubatch.seq_id_unq) == 1:
        return [(ubatch.seq_id_unq[0], np.arange(part.start, part.stop))]
    found: dict[int, list[int]] = {}
    for i in part:
        found.setdefault(ubatch.seq_id[i][0], []).append(i)
    return [(s, np.array(i, np.intp)) for s, i in found.items()]


def _fill(
    mask: npt.NDArray[Any],
    rule: MaskRule,
    hide: Any,
    cells: KVCells,
    seq_id: int,
    ubatch: UBatch,
    tokens: npt.NDArray[np.intp],
) -> None:
    """Fill one sequence's rows: like the first token's row except for cells near the ubatch."""
    n_kv = mask.shape[1]
    mine = cells.seq[seq_id, :n_kv]
    first = int(tokens[np.argmin(ubatch.pos[tokens])]) if tokens.size > 1 else int(tokens[0])
    seen = mine & rule.visible(cells, slice(0, n_kv), ubatch, first)
    np.multiply(~seen, hide, out=mask[first])
    if tokens.size > 1:
        rows = _slice_or_indices(tokens)
        mask[rows] = mask[first]
        back = 0 if rule.window is None else rule.window.size
        near = cells.pos[:n_kv] >= int(ubatch.pos[first]) - back  # may be below an i32
        changing = _slice_or_indices(np.flatnonzero(mine & near))
        hidden = ~rule.visible(cells, changing, ubatch, tokens[:, None])
        if isinstance(rows, np.ndarray):
            rows = rows if isinstance(changing, slice) else rows[:, None]
        mask[rows, changing] = hidden * hide


def _slice_or_indices(i: npt.NDArray[np.intp]) -> slice | npt.NDArray[np.intp]:
    """Return ascending indices as a slice, which is faster, if they are consecutive."""
    n = i.size
    return slice(int(i[0]), int(i[0]) + n) if n and i[-1] - i[0] == n - 1 else i


def _fill_distances(
    mask: npt.NDArray[Any],
    rule: MaskRule,
    cells: KVCells,
    seq_id: int,
    ubatch: UBatch,
    tokens: npt.NDArray[np.intp],
) -> None:
    """Fill one sequence's rows, each computed separately."""
    n_kv = mask.shape[1]
    seen = cells.seq[seq_id, :n_kv] & rule.visible(cells, slice(0, n_kv), ubatch, tokens[:, None])
    mask[tokens] = _distances(seen, cells.pos[:n_kv], ubatch.pos[tokens][:, None], mask.dtype)


def _distances(seen: Bools, p0: Any, p1: Any, bits: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return -|p1 - p0| for visible cells, else -inf, as bits."""
    floats = np.where(seen, -np.abs(p1 - p0), -np.inf)
    return floats.astype(np.float16 if bits.itemsize == 2 else np.float32).view(bits)
