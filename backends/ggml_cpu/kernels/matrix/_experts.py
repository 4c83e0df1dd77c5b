"""Preparation kernel of MUL_MAT_ID: group tokens by expert and pack their activations in tiles.

An entry is one selected expert of one token. Its number, token * n_used + slot, is also the column
of dst for its result. Shared scratch: groups | order | columns.

groups: GROUP_BYTES per expert with entries, in the order of experts. Fields (i32): EXPERT, PLACE of
    the first entry in `order`, COUNT of entries, first COLUMN. A sentinel group follows: its COUNT
    is 0 and its COLUMN is the total number of columns.
order: entry numbers (i32), sorted by group.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import UNIT, Activations
from ggml_cpu.blocks.tiles import GRAIN, pad_columns
from ggml_cpu.faults import index_or_0
from ggml_cpu.kernel import Kernel, fn, kernel
from ggml_cpu.kernels.matrix._columns import LOCAL as UNIT_LOCAL
from ggml_cpu.kernels.matrix._columns import count_units, packed_address, putter, source
from ggml_cpu.quants import activations
from ggml_py.tensor import Tensor

EXPERT, PLACE, COUNT, COLUMN, GROUP_BYTES = 0, 4, 8, 12, 16
FIRST, OF = 4, 5  # indices of op params `first` and `of`: see ggml_py.ops.mul_mat_id


@fn
def order_address(groups: int, entries: int) -> int:
    return groups + GROUP_BYTES * (entries + 1)


@fn
def end_of_lists(groups: int, entries: int) -> int:
    """Return the end of groups and order, a multiple of 64 bytes after their start.

    In shared scratch, the columns start at this address.
    """
    return groups + (order_address(0, entries) + 4 * entries + 63) // 64 * 64


@fn
def local_lists(local: int, entries: int, experts: int) -> tuple[int, int, int, int]:
    """Return the addresses of a thread's lists in local scratch.

    They are: groups followed by order, each entry's place in its group (i32 [entries]), each
    expert's group (i32 [experts]), and the end.
    """
    groups = local + UNIT_LOCAL
    place_of = end_of_lists(groups, entries)
    group_of = place_of + 4 * entries
    return groups, place_of, group_of, group_of + 4 * experts


def shared_bytes(node: Tensor, activations: Activations) -> int:
    """Return the bytes of shared scratch of a MUL_MAT_ID node: groups, order and columns."""
    experts, ids = node.source(0), node.source(2)
    entries = ids.ne[0] * ids.ne[1]
    columns = entries + (GRAIN - 1) * min(entries, experts.ne[2])
    return end_of_lists(0, entries) + columns * activations.column_bytes(experts.ne[0])


def local_bytes(node: Tensor) -> int:
    experts, ids = node.source(0), node.source(2)
    return local_lists(0, ids.ne[0] * ids.ne[1], experts.ne[2])[-1]


@fn
def find_expert(p, entry):
    """Return the index of an entry's expert among the local experts (the matrices of src0).

    The index is out of range if src0 does not have the expert. An invalid id is recorded as a
    fault and replaced by 0.
    """
    used, n_all = v.ne(p, 3, 0), v.op_i32(p, OF)
    at = v.data(p, 3) + entry % used * v.nb(p, 3, 0) + entry // used * v.nb(p, 3, 1)
    n = n_all if n_all > 0 else v.ne(p, 1, 2)
    return index_or_0(p, v.ld_i32(at), n) - v.op_i32(p, FIRST)


@fn
def is_here(p, expert):
    return expert >= 0 and expert < v.ne(p, 1, 2)


@fn
def make_groups(p, groups, group_of, entries):
    """Make a group for each expert with entries; group_of: i32 [experts], group of an expert."""
    experts = v.ne(p, 1, 2)
    for e in range(experts):
        v.st_i32(group_of + 4 * e, 0)
    for i in range(entries):
        e = find_expert(p, i)
        if is_here(p, e):
            v.st_i32(group_of + 4 * e, v.ld_i32(group_of + 4 * e) + 1)
    g, place, column = groups, 0, 0
    for e in range(experts):
        count = v.ld_i32(group_of + 4 * e)
        if count > 0:
            v.store(g, v.set_lane(v.set_lane(v.i32x4(0), 0, e), 1, place))
            v.st_i32(g + COLUMN, column)
            v.st_i32(group_of + 4 * e, (g - groups) // GROUP_BYTES)
            g += GROUP_BYTES
            place += count
            column += pad_columns(count)
    v.store(g, v.set_lane(v.i32x4(0), 3, column))


@fn
def fill_groups(p, groups, order, group_of, place_of, entries):
    """Assign entries to their groups; place_of: i32 [entries], place of an entry in its group."""
    for i in range(entries):
        e = find_expert(p, i)
        if is_here(p, e):
            g = groups + GROUP_BYTES * v.ld_i32(group_of + 4 * e)
            place = v.ld_i32(g + COUNT)
            v.st_i32(order + 4 * (v.ld_i32(g + PLACE) + place), i)
            v.st_i32(place_of + 4 * i, place)
            v.st_i32(g + COUNT, place + 1)


@fn
def copy_words(src, dst, n):
    for i in range(n):
        v.st_i32(dst + 4 * i, v.ld_i32(src + 4 * i))


def _group_kernel(activations: Activations) -> Kernel:
    pack, put, column_bytes = activations.pack, putter(activations), activations.column_bytes
    unit_bytes, find_tile = column_bytes(UNIT), activations.find_tile

    @fn
    def send(p, groups, group_of, place_of, entry, columns, i, packed, size):
        """Copy the packed unit i of an entry to its column in the tiles of its group.

        Entries without a local expert are skipped.
        """
        e = find_expert(p, entry)
        if not is_here(p, e):
            return
        g = groups + GROUP_BYTES * v.ld_i32(group_of + 4 * e)
        count, place = v.ld_i32(g + COUNT), v.ld_i32(place_of + 4 * entry)
        first, width = find_tile(place, count)
        to = columns + (v.ld_i32(g + COLUMN) + first) * column_bytes(v.ne(p, 2, 0))
        to += i * unit_bytes * width
        put(packed, size, to, width, place - first, place == count - 1)

    @kernel(name=f"experts_{activations.name}", reads=(2, 3))
    def experts(p, ith, nth):
        """Build the lists in each thread, which is cheap, then pack the thread's part of src1.

        Thread 0 copies the lists to shared scratch.
        """
        k, n1, used, tokens = v.ne(p, 2, 0), v.ne(p, 2, 1), v.ne(p, 3, 0), v.ne(p, 3, 1)
        entries = used * tokens
        buffer = v.local(p, ith)
        packed = packed_address(buffer)
        groups, place_of, group_of, _ = local_lists(buffer, entries, v.ne(p, 1, 2))
        make_groups(p, groups, group_of, entries)
        fill_groups(p, groups, order_address(groups, entries), group_of, place_of, entries)
        if ith == 0:
            copy_words(groups, v.shared(p), order_address(0, entries) // 4 + entries)
        columns = end_of_lists(v.shared(p), entries)
        units = count_units(k)
        start, stop = v.split(units * n1 * tokens, ith, nth)
        for u in range(start, stop):
            row, i = u // units, u % units
            token, slot = row // n1, row % n1
            count = min(UNIT, k - UNIT * i)
            pack(source(p, slot, token, 0, UNIT * i, count, buffer), count, packed)
            size = column_bytes(count)
            for s in range(slot, used, n1):
                entry = token * used + s
                send(p, groups, group_of, place_of, entry, columns, i, packed, size)

    return experts


EXPERTS: dict[Activations, Kernel] = {a: _group_kernel(a) for a in activations()}
