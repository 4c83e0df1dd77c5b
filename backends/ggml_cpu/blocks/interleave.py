"""Conversion of rows to panels: interleave the 32-bit words of LANES rows, one vector per word."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.panels import WORD
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES


def interleaver(load: Function, load_n: Function, size: int, per_word: int = 1) -> Function:
    """Return interleave(..) for rows with elements of `size` bytes, `per_word` elements per word.

    `load(address)` reads LANES words as an i32 vector; `load_n(address, n)` reads the first n
    elements and pads with zeros.
    """
    span = LANES * per_word

    @fn
    def interleave(src, stride, rows, n, dst, step):
        """Store word i of row r at dst + i * step + 4 * r; missing rows repeat the last."""
        for first in range(0, n, span):
            tile = v.i32_regs(LANES)
            left = n - first
            for r in range(LANES):
                row = src + min(r, rows - 1) * stride + first * size
                if left >= span:
                    tile[r] = load(row)
                else:
                    tile[r] = load_n(row, left)
            v.transpose(tile)
            words = (min(left, span) + per_word - 1) // per_word
            to = dst + first // per_word * step
            for i in range(LANES):
                if i < words:
                    v.store(to + i * step, tile[i])

    return interleave


@fn
def transpose_rows(at, apart):
    """Transpose LANES rows of LANES words in place; rows are `apart` bytes apart."""
    words = v.i32_regs(LANES)
    for i in range(LANES):
        words[i] = v.i32_load(at + apart * i)
    v.transpose(words)
    for i in range(LANES):
        v.store(at + apart * i, words[i])


def word_interleaver(flip: int) -> Function:
    """Return an interleaver that XORs `flip` into each word."""

    @fn
    def load_words(address):
        return v.i32_load(address) ^ flip

    @fn
    def load_words_n(address, n):
        return v.i32_load_n(address, n) ^ flip

    return interleaver(load_words, load_words_n, 4)


interleave_words = word_interleaver(0)


@fn
def interleave_halves(src, stride, rows, dst):
    """Store the first 16-bit number of each of LANES rows contiguously."""
    for r in range(LANES):
        v.st_u16(dst + 2 * r, v.ld_u16(src + min(r, rows - 1) * stride))


def word_by_word(block_bytes: int) -> tuple[Function, Function]:
    """Return `panel` (see walk.py:weight) for panels that keep the word order of blocks."""
    words = block_bytes // 4

    @fn
    def pack(src, stride, rows, scales, dst):
        interleave_words(src, stride, rows, words, dst, WORD)

    @fn
    def gather(scales, panel, r, dst):
        for i in range(words):
            v.st_i32(dst + 4 * i, v.ld_i32(panel + i * WORD + 4 * r))

    return pack, gather


def scale_first(block_bytes: int, size: int, flip: int = 0) -> tuple[Function, Function]:
    """Return `panel` (see walk.py:weight) for blocks of a scale and words.

    A scale has `size` bytes, 1 or 2. A panel block has scales [LANES] and words [..][LANES].
    `flip` is XORed into its words.
    """
    words, interleave = (block_bytes - size) // 4, word_interleaver(flip)

    @fn
    def copy_scale(src, dst):
        if size == 1:
            v.st_u8(dst, v.ld_u8(src))
        else:
            v.st_u16(dst, v.ld_u16(src))

    @fn
    def pack(src, stride, rows, scales, dst):
        for r in range(LANES):
            copy_scale(src + min(r, rows - 1) * stride, scales + size * r)
        interleave(src + size, stride, rows, words, dst, WORD)

    @fn
    def gather(scales, panel, r, dst):
        copy_scale(scales + size * r, dst)
        for i in range(words):
            v.st_i32(dst + size + 4 * i, v.ld_i32(panel + i * WORD + 4 * r) ^ flip)

    return pack, gather
