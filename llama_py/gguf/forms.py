"""Tensor types of ik_llama.cpp that files store in another form than memory.

Rows may begin with a scale, which in memory is repeated in each block, and four to sixteen rows may
be interleaved. `Form.unwind` returns the bytes of the plain type. It changes no value.
An interleaved type is a list of bit fields (see ggml_py/machine/bits.py); axis k numbers its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ggml_py.machine.bits import U8, field
from ggml_py.types import BY_NAME, GGMLType

PIECE = 1 << 22  # bytes that are unwound at a time
Convert = Callable[[U8], U8]

D16, D32 = "k4 x16 > k x", "k4 x32 > k x"
BYTES8, BYTES16 = "s8 k4 x8 > k s x", "s16 k4 x8 > k s x"
QUADS = "s8 k4 i4 x8 > k s i x"  # four bytes per group of 32
MINIMA = "m2 k4 x16 > k m x"  # scales, then scales of the minima
SCALES16 = "y8 k4 z2 b4 > k z y b"  # four bits for each group of 16
SCALES16_HIGH = "m4 k4 t4 b2 > k t m b"
SHIFTS16 = "h2 k4 i8 > k i h"
TWO_BITS = "H2 q4 h2 k4 i4 w4 b2 > k H h w i q b"
THIRD_BITS = "H2 q4 k4 i4 h2 w4 > k h w i H q"
NIBBLES32 = "c2 h2 k4 i4 n2 b4 > k n c i h b"
NIBBLES256 = "s8 c2 h2 k4 i4 n2 b4 > k s n c i h b"
NIBBLES64 = (
    "B4 p2 c2 h2 k4 i4 n2 b4 > k B h n c i p b"  # low nibbles: 32 values, high nibbles: 32 more
)
FIFTH_BITS = "B4 p2 k4 i4 c2 h2 n2 > k h n c i B p"


@dataclass(frozen=True)
class Form:
    """A type in a file.

    plain    its type in memory
    rows     number of interleaved rows
    head     bytes of a row before its blocks
    size     values per row of a block in the file
    nbytes   bytes per row of such a block
    convert  the blocks of `rows` rows, [blocks, rows * nbytes], as blocks of each row without its
             scale, [blocks, rows, bytes]
    """

    id: int
    name: str
    plain: GGMLType
    rows: int
    head: int
    size: int
    nbytes: int
    convert: Convert

    @property
    def file_type(self) -> GGMLType:
        """The type as the file has it, to copy its tensors."""
        return GGMLType(self.id, self.name, self.size, self.nbytes)

    def row_size(self, n: int) -> int:
        """Return the bytes of a row of n values in a file."""
        return self.head + n // self.size * self.nbytes

    def tensor_size(self, ne: tuple[int, ...]) -> int:
        """Return the bytes of a tensor in a file."""
        tail = TENSOR_SCALE if self.id == I2_S else 0
        return self.row_size(ne[0]) * (ne[1] * ne[2] * ne[3]) + tail

    def unwind(self, stored: U8, n: int) -> U8:
        """Return the plain type's bytes of stored rows of n values."""
        if not n or not len(stored):
            return np.empty(0, np.uint8)
        tail = stored[:0]
        if self.id == I2_S:
            body = len(stored) - TENSOR_SCALE
            stored, tail = stored[:body], stored[body : body + 4]
        row, step = self.row_size(n), self.plain.row_size(n)
        groups = stored.reshape(-1, self.rows * row)
        out = np.empty((len(groups), self.rows * step), np.uint8)
        at_once = max(1, PIECE // (self.rows * row))
        for i in range(0, len(groups), at_once):
            out[i : i + at_once] = self._unwind(groups[i : i + at_once], tail, n)
        return out.reshape(-1)

    def _unwind(self, groups: U8, tail: U8, n: int) -> U8:
        heads = groups[:, : self.rows * self.head].reshape(len(groups), 1, self.rows, self.head)
        body = groups[:, self.rows * self.head :].reshape(len(groups) * (n // self.size), -1)
        blocks = self.convert(body)
        blocks = blocks.reshape(len(groups), -1, self.rows, blocks.shape[-1])
        if self.head or len(tail):
            size = self.plain.type_size - blocks.shape[-1]  # of the scale
            each = tail if len(tail) else heads[..., :size]
            scales: U8 = np.broadcast_to(each, (*blocks.shape[:3], size))
            blocks = np.concatenate([scales, blocks], axis=-1)
        return blocks.transpose(0, 2, 1, 3).reshape(len(groups), -1)


def _copy(raw: U8) -> U8:
    return raw


def _fields(rows: int, order: tuple[int, ...], *specs: str) -> Convert:
    """Return `convert` for fields; `order` is their order in the plain type."""

    def convert(raw: U8) -> U8:
        parts, at = [], 0
        for spec in specs:
            f = field(spec)
            found = f.rearrange(raw[:, at : at + f.nbytes])
            parts.append(found.reshape(len(raw), rows, -1))
            at += f.nbytes
        return np.concatenate([parts[i] for i in order], axis=-1)

    return convert


def _k_scales(rest: Convert) -> Convert:
    """Return `convert` for q4_K and q5_K: six bits for each scale and minimum, packed by fours."""
    high, low = field("j4 k4 p2 h2 b2 > k p h j b"), field("p2 j4 k4 h2 b4 > k p h j b")

    def convert(raw: U8) -> U8:
        d = field(MINIMA).rearrange(raw[:, :16]).reshape(-1, 4, 4)
        upper = high.read(raw[:, 16:32]).reshape(-1, 4, 2, 2, 4)
        lower = low.read(raw[:, 32:64]).reshape(-1, 4, 2, 2, 4)
        first = lower[:, :, 0] | upper[:, :, 0] << 4 | upper[:, :, 1] << 6
        last = lower[:, :, 1, 0] | lower[:, :, 1, 1] << 4
        parts = d, first.reshape(-1, 4, 8), last, rest(raw[:, 64:])
        return np.concatenate(parts, axis=-1)

    return convert


def _signs_and_scales(values: str) -> Convert:
    """Return `convert` for iq2_xxs and iq3_xxs: a word of four signs of 7 bits, and a scale.

    Bit 0 of byte i is bit i of the scale. The other bits u are signs u ^ u >> 1; the last sign
    follows from the others.
    """

    def convert(raw: U8) -> U8:
        d = field(D16).rearrange(raw[:, :8]).reshape(-1, 4, 2)
        bytes = field(QUADS).rearrange(raw[:, 8:136]).reshape(-1, 4, 8, 4)
        even = bytes & 0xFE
        signs = ((even ^ even >> 1) & 127).astype(np.uint32)
        place = np.arange(4, dtype=np.uint32)
        both = signs << 7 * place | (bytes & 1).astype(np.uint32) << 28 + place
        words = np.bitwise_or.reduce(both, axis=-1).astype("<u4").view(np.uint8)
        index = field(values).rearrange(raw[:, 136:]).reshape(len(raw), 4, 8, -1)
        if index.shape[-1] == 4:  # iq2_xxs has the word after its indices
            body = np.concatenate([index, words.reshape(-1, 4, 8, 4)], axis=-1)
            return np.concatenate([d, body.reshape(-1, 4, 64)], axis=-1)
        return np.concatenate([d, index.reshape(-1, 4, 64), words.reshape(-1, 4, 32)], axis=-1)

    return convert


def _iq2_xs(raw: U8) -> U8:
    words = field("s8 k4 i4 x16 > k s i x").read(raw[:, 8:264])
    signs = words >> 9
    words = (words & 511) | ((signs ^ signs << 1) & 127) << 9
    d = field(D16).rearrange(raw[:, :8]).reshape(-1, 4, 2)
    index = words.astype("<u2").view(np.uint8).reshape(-1, 4, 64)
    scales = field(BYTES8).rearrange(raw[:, 264:]).reshape(-1, 4, 8)
    return np.concatenate([d, index, scales], axis=-1)


def _groups_of_32(low: str, high: str, scales: str = "") -> Convert:
    """Return `convert` for eight groups of 32 values that are blocks in the file."""

    def convert(raw: U8) -> U8:
        raw = raw.reshape(len(raw), 8, -1)
        parts, at = [], 0
        for spec in filter(None, (low, high, scales)):
            f = field(spec)
            part = np.ascontiguousarray(raw[:, :, at : at + f.nbytes]).reshape(-1, f.nbytes)
            rows = f.rearrange(part).reshape(len(raw), 8, 4, -1).transpose(0, 2, 1, 3)
            parts.append(rows.reshape(len(raw), 4, -1))
            at += f.nbytes
        return np.concatenate(parts, axis=-1)

    return convert


def _q8(rows: int, flip: int) -> Convert:
    """Return `convert` from blocks of 256 int8 with a half scale to eight blocks of q8_0."""

    def convert(raw: U8) -> U8:
        d = field(f"k{rows} x16 > k x").rearrange(raw[:, : 2 * rows])
        q = field(f"s64 k{rows} i4 x8 > k s i x").rearrange(raw[:, 2 * rows :]) ^ np.uint8(flip)
        shape = (len(raw), rows, 8)
        d = np.broadcast_to(d.reshape(len(raw), rows, 1, 2), (*shape, 2))
        blocks = np.concatenate([d, q.reshape(*shape, 32)], axis=-1)
        return blocks.transpose(0, 2, 1, 3)  # eight blocks of each row

    return convert


def _i2_s(raw: U8) -> U8:
    """Return two blocks of iq2_bn from 32 bytes with the first values in the upper bits."""
    values = field("j32 p4 b2 > p j b").read(raw).reshape(-1, 4, 32)[:, ::-1]
    return field("j16 p4 b2 > p j b").write(values.reshape(-1, 64))


I2_S, TENSOR_SCALE = 36, 32
"""The scale of a tensor follows all its values; unused bytes follow the scale."""


def _head(id: int, name: str, head: int) -> Form:
    """Return the form of a type with a scale at the start of each row."""
    plain = BY_NAME[name]
    scale = 4 if name == "q8_kv" else head
    return Form(id, name, plain, 1, head, plain.block_size, plain.type_size - scale, _copy)


def _interleave(
    id: int, name: str, plain: str, convert: Convert, rows: int = 4, head: int = 0
) -> Form:
    """Return the form of an interleaved type."""
    kind = BY_NAME[plain]
    return Form(id, name, kind, rows, head, kind.block_size, kind.type_size - head, convert)


def _simple(rows: int) -> Convert:
    return _fields(rows, (0, 1), f"k{rows} x16 > k x", f"l4 k{rows} i4 x8 > k l i x")


FORMS: dict[int, Form] = {
    form.id: form
    for form in (
        _head(134, "iq1_bn", 2),
        _head(135, "iq2_bn", 4),
        _head(144, "iq4_ks", 4),
        _head(145, "iq2_ks", 2),
        _head(146, "iq4_kss", 4),
        _head(151, "q8_kv", 8),
        _head(152, "iq5_ks", 4),
        _head(153, "iq2_kt", 4),
        _head(154, "iq3_kt", 4),
        _head(155, "iq4_kt", 4),
        _head(156, "iq3_ks", 2),
        _head(157, "iq2_kl", 2),
        _head(158, "iq1_kt", 4),
        Form(I2_S, "i2_s", BY_NAME["iq2_bn"], 1, 0, 128, 32, _i2_s),
        _interleave(202, "q4_0_r8", "q4_0", _simple(8), 8),
        _interleave(
            206,
            "q5_0_r4",
            "q5_0",
            _fields(4, (0, 1, 2), D16, "k4 i4 n2 c2 h2 > k h n c i", NIBBLES32),
        ),
        _interleave(
            208,
            "q8_0_r8",
            "q8_0",
            _fields(8, (0, 1), "k8 x16 > k x", "g2 l4 k8 i4 x8 > k g l i x"),
            8,
        ),
        _interleave(210, "q2_K_r4", "q2_K", _fields(4, (1, 2, 0), MINIMA, BYTES16, TWO_BITS)),
        _interleave(
            211,
            "q3_K_r4",
            "q3_K",
            _fields(
                4,
                (3, 4, 2, 1, 0),
                D16,
                "m4 k4 t4 b2 > k m t b",
                "y8 k4 t2 b4 > k y t b",
                THIRD_BITS,
                TWO_BITS,
            ),
        ),
        _interleave(212, "q4_K_r4", "q4_K", _k_scales(_fields(4, (0,), NIBBLES64))),
        _interleave(
            213,
            "q5_K_r4",
            "q5_K",
            _k_scales(_fields(4, (0, 1), "B4 p2 k4 i4 h2 c2 n2 > k h n c i B p", NIBBLES64)),
        ),
        _interleave(
            214,
            "q6_K_r4",
            "q6_K",
            _fields(
                4,
                (3, 2, 1, 0),
                D16,
                "i8 h2 k4 x8 > k i h x",
                "H2 P2 Q2 h2 k4 i4 c2 n2 b2 > k H h n c i P Q b",
                "H2 P2 Q2 c2 h2 k4 i4 n2 b4 > k H Q h n c i P b",
            ),
        ),
        _interleave(216, "iq2_xxs_r4", "iq2_xxs", _signs_and_scales(QUADS)),
        _interleave(217, "iq2_xs_r4", "iq2_xs", _iq2_xs),
        _interleave(218, "iq3_xxs_r4", "iq3_xxs", _signs_and_scales("s8 k4 i8 x8 > k s i x")),
        _interleave(
            219, "iq1_s_r4", "iq1_s", _groups_of_32("i4 k4 x8 > k i x", "k4 x16 > k x"), head=2
        ),
        _interleave(220, "iq4_nl_r4", "iq4_nl", _fields(4, (0, 1), D16, NIBBLES32)),
        _interleave(
            221,
            "iq3_s_r4",
            "iq3_s",
            _fields(
                4,
                (0, 1, 2, 3, 4),
                D16,
                "s8 i4 g2 k4 x8 > k s g i x",
                BYTES8,
                "s8 k4 i4 a4 g2 > k s a g i",
                "y4 k4 z2 b4 > k z y b",
            ),
        ),
        _interleave(
            222, "iq2_s_r4", "iq2_s", _fields(4, (0, 1, 3, 2, 4), D16, QUADS, BYTES8, QUADS, BYTES8)
        ),
        _interleave(
            223,
            "iq4_xs_r8",
            "iq4_xs",
            _fields(
                8,
                (0, 1, 2, 3),
                "k8 x16 > k x",
                "m2 k8 t4 b2 > k t m b",
                "y4 k8 z2 b4 > k z y b",
                "s8 h2 c2 k8 i4 n2 b4 > k s c n i h b",
            ),
            8,
        ),
        _interleave(
            229,
            "iq1_m_r4",
            "iq1_m_r4",
            _groups_of_32("i2 e2 k4 x8 > k i e x", "i2 k4 x8 > k i x", "k4 x8 > k x"),
            head=2,
        ),
        Form(230, "bf16_r16", BY_NAME["bf16"], 16, 0, 2, 4, _fields(16, (0,), "k16 x32 > k x")),
        _interleave(
            233,
            "q6_0_r4",
            "q6_0",
            _fields(4, (0, 1, 2), D16, "h2 k4 i4 n2 c2 b2 > k c i n h b", NIBBLES32),
        ),
        _interleave(
            335, "iq2_bn_r4", "iq2_bn", _fields(4, (0,), "p4 k4 i4 w4 b2 > k w i p b"), head=4
        ),
        _interleave(
            337, "iq2_k_r4", "iq2_k", _fields(4, (0, 1, 2, 3), D16, SHIFTS16, SCALES16, TWO_BITS)
        ),
        _interleave(
            338,
            "iq3_k_r4",
            "iq3_k",
            _fields(
                4,
                (0, 1, 2, 3, 4, 5),
                D16,
                SHIFTS16,
                "m2 k4 t8 > k t m",
                SCALES16,
                TWO_BITS,
                THIRD_BITS,
            ),
        ),
        _interleave(
            339,
            "iq4_k_r4",
            "iq4_k",
            _fields(4, (0, 1, 2, 3, 4), D16, SHIFTS16, SCALES16_HIGH, SCALES16, NIBBLES256),
        ),
        _interleave(
            340,
            "iq5_k_r4",
            "iq5_k",
            _fields(
                4, (0, 1, 2, 3, 4, 5), D16, SHIFTS16, SCALES16_HIGH, SCALES16, NIBBLES64, FIFTH_BITS
            ),
        ),
        _interleave(344, "iq4_ks_r4", "iq4_ks", _fields(4, (0, 1), BYTES8, NIBBLES256), head=4),
        _interleave(
            352, "iq5_ks_r4", "iq5_ks", _fields(4, (0, 1, 2), BYTES8, NIBBLES64, FIFTH_BITS), head=4
        ),
        _interleave(
            353, "mxfp4_r8", "mxfp4", _fields(8, (0, 1), "k8 x8 > k x", "l4 k8 i4 x8 > k l i x"), 8
        ),
        Form(397, "q8_k_r16", BY_NAME["q8_0"], 16, 0, 256, 258, _q8(16, 128)),
        Form(
            398,
            "q8_kv_r8",
            BY_NAME["q8_kv"],
            8,
            4,
            32,
            32,
            _fields(8, (0,), "s2 l4 k8 i4 x8 > k s l i x"),
        ),
        Form(399, "q8_k_r8", BY_NAME["q8_0"], 8, 0, 256, 258, _q8(8, 0)),
    )
}


def file_size(kind: GGMLType, ne: tuple[int, ...]) -> int:
    """Return the bytes of a tensor of a type in a file."""
    form = FORMS.get(kind.id)
    return form.tensor_size(ne) if form and form.name == kind.name else kind.tensor_size(ne)


RETIRED = {142: "iq2_tn", 143: "iq1_tn"}
"""Former types of ik_llama.cpp. PrismML's llama.cpp uses the same numbers for other types."""
