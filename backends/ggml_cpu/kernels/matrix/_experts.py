"""Preparing step of MUL_MAT_ID: tokens grouped by expert, their activations packed in tiles.

An entry is one used expert of one token, numbered token * n_used + slot: also the column of dst
that its product goes to. Shared scratch: groups | order | columns.
groups   i32 [4] each, for experts with entries, in order: expert, first place in `order`, number
         of entries, first column; the last has number 0, and the total of columns
order    i32: entries by group
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Kernel, fn, kernel
from ggml_cpu.kernels.matrix._columns import LOCAL as UNIT_LOCAL
from ggml_cpu.kernels.matrix._columns import put, source
from ggml_cpu.quants.activations import FORMATS, UNIT, Activations
from ggml_cpu.quants.tiles import GRAIN, padded, tile_of
from ggml_py.tensor import Tensor


@fn
def lists_bytes(entries):
    """Groups and order, rounded up to a cache line."""
    return (16 * (entries + 1) + 4 * entries + 63) // 64 * 64


def shared_bytes(node: Tensor, activations: Activations) -> int:
    """Shared scratch of the groups of a MUL_MAT_ID node."""
    experts, ids = node.src[0], node.src[2]
    entries = ids.ne[0] * ids.ne[1]
    columns = entries + (GRAIN - 1) * min(entries, experts.ne[2])
    return lists_bytes(entries) + columns * activations.column_bytes(experts.ne[0])


def local_bytes(node: Tensor) -> int:
    """Local scratch: unit buffers, every thread's own lists, place and group of entries."""
    experts, ids = node.src[0], node.src[2]
    entries = ids.ne[0] * ids.ne[1]
    return UNIT_LOCAL + lists_bytes(entries) + 4 * entries + 4 * experts.ne[2]


@fn
def expert_of(p, entry):
    """The expert of an entry; an id out of range counts as the nearest expert."""
    used = v.ne(p, 3, 0)
    at = v.data(p, 3) + entry % used * v.nb(p, 3, 0) + entry // used * v.nb(p, 3, 1)
    return max(0, min(v.ne(p, 1, 2) - 1, v.ld_i32(at)))


@fn
def make_groups(p, groups, group_of, entries):
    """Count the entries of each expert, list the experts that have any; group_of: i32 [experts]."""
    experts = v.ne(p, 1, 2)
    for e in range(experts):
        v.st_i32(group_of + 4 * e, 0)
    for i in range(entries):
        count = group_of + 4 * expert_of(p, i)
        v.st_i32(count, v.ld_i32(count) + 1)
    g, place, column = groups, 0, 0
    for e in range(experts):
        count = v.ld_i32(group_of + 4 * e)
        if count > 0:
            v.store(g, v.set_lane(v.set_lane(v.i32x4(0), 0, e), 1, place))
            v.st_i32(g + 12, column)
            v.st_i32(group_of + 4 * e, (g - groups) // 16)
            g += 16
            place += count
            column += padded(count)
    v.store(g, v.set_lane(v.i32x4(0), 3, column))


@fn
def fill_groups(p, groups, order, group_of, place_of, entries):
    """Put the entries in their groups; place_of: i32 [entries], the place of each in its group."""
    for i in range(entries):
        g = groups + 16 * v.ld_i32(group_of + 4 * expert_of(p, i))
        place = v.ld_i32(g + 8)
        v.st_i32(order + 4 * (v.ld_i32(g + 4) + place), i)
        v.st_i32(place_of + 4 * i, place)
        v.st_i32(g + 8, place + 1)


@fn
def copy_words(src, dst, n):
    for i in range(n):
        v.st_i32(dst + 4 * i, v.ld_i32(src + 4 * i))


def _grouped(activations: Activations) -> Kernel:
    elements, block_bytes, pack = activations.elements, activations.block_bytes, activations.pack
    unit_bytes = UNIT // elements * block_bytes

    @fn
    def send(p, groups, group_of, place_of, entry, columns, i, packed, size):
        """Unit i of an entry's activations to its place in the tiles of its group."""
        k = v.ne(p, 2, 0)
        column_bytes = (k + elements - 1) // elements * block_bytes
        g = groups + 16 * v.ld_i32(group_of + 4 * expert_of(p, entry))
        count, place = v.ld_i32(g + 8), v.ld_i32(place_of + 4 * entry)
        first, width = tile_of(place, count)
        to = columns + (v.ld_i32(g + 12) + first) * column_bytes + i * unit_bytes * width
        put(packed, size, to, width, place - first, place == count - 1)

    @kernel(name=f"experts_{activations.name}", reads=(2, 3))
    def experts(p, ith, nth):
        """Every thread makes the lists, which is cheap; then each packs its part of src1."""
        k, n1, used, tokens = v.ne(p, 2, 0), v.ne(p, 2, 1), v.ne(p, 3, 0), v.ne(p, 3, 1)
        entries = used * tokens
        buffer = v.local(p, ith)
        packed = buffer + 4 * UNIT
        groups = buffer + UNIT_LOCAL
        order = groups + 16 * (entries + 1)
        place_of = groups + lists_bytes(entries)
        group_of = place_of + 4 * entries
        make_groups(p, groups, group_of, entries)
        fill_groups(p, groups, order, group_of, place_of, entries)
        if ith == 0:
            copy_words(groups, v.shared(p), 4 * (entries + 1) + entries)
        columns = v.shared(p) + lists_bytes(entries)
        units = (k + UNIT - 1) // UNIT
        start, stop = v.split(units * n1 * tokens, ith, nth)
        for u in range(start, stop):
            row, i = u // units, u % units
            token, slot = row // n1, row % n1
            count = min(UNIT, k - UNIT * i)
            pack(source(p, slot, token, 0, UNIT * i, count, buffer), count, packed)
            size = (count + elements - 1) // elements * block_bytes
            for s in range(slot, used, n1):
                entry = token * used + s
                send(p, groups, group_of, place_of, entry, columns, i, packed, size)

    return experts


EXPERTS: dict[Activations, Kernel] = {a: _grouped(a) for a in FORMATS}
