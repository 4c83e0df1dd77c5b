"""The bounds check that an instrumented kernel calls before each load and store.

Word BOUNDS of a program's record of faults (faults.py) is the address of this record, int64 words,
or 0 if bounds are not checked:

| words                                  | content                                             |
|----------------------------------------|-----------------------------------------------------|
| FOUND                                  | number of refused accesses                          |
| BLOCK, KERNEL, ADDRESS, NBYTES, WRITES | the first refused access; WRITES is 1 for a store   |
| FIRST                                  | address of the first parameter block                |
| EXTENTS, COLUMNS                       | table of allowed memory: a row of COLUMNS times     |
|                                        | (start, end, writable) for each block               |
| ZEROS, SINK                            | addresses that replace a refused load or store      |
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.faults import BOUNDS, FAULT
from ggml_cpu.kernel import fn
from ggml_cpu.params import WORDS

FOUND, BLOCK, KERNEL, ADDRESS, NBYTES, WRITES = 0, 1, 2, 3, 4, 5
FIRST, EXTENTS, COLUMNS, ZEROS, SINK = 6, 7, 8, 9, 10
RECORD_WORDS = 16
SPARE_BYTES = 1024  # bytes at ZEROS and at SINK: the size of the largest vector

# Description of a kernel's module, int64 words at `here`: address of its entry point, number of
# constant tables, then (start, bytes) of each table.
ENTRY, TABLES, FIRST_TABLE = 0, 1, 2


@fn
def check_access(p, here, address, nbytes, writes):
    """Return `address` if a kernel with parameter block p may access its `nbytes` bytes.

    Otherwise record the access and return the address ZEROS for a load, SINK for a store.
    """
    faults = v.ld_i64(p + 8 * FAULT)
    if faults == 0 or nbytes == 0:
        return address
    record = v.ld_i64(faults + 8 * BOUNDS)
    if record == 0:
        return address
    end = address + nbytes
    columns = v.ld_i64(record + 8 * COLUMNS)
    row = (p - v.ld_i64(record + 8 * FIRST)) // (8 * WORDS)
    extent = v.ld_i64(record + 8 * EXTENTS) + 24 * columns * row
    for _ in range(columns):
        inside = address >= v.ld_i64(extent) and end <= v.ld_i64(extent + 8)
        if inside and writes <= v.ld_i64(extent + 16):
            return address
        extent += 24
    table = here + 8 * FIRST_TABLE
    for _ in range(v.ld_i64(here + 8 * TABLES)):
        start = v.ld_i64(table)
        if writes == 0 and address >= start and end <= start + v.ld_i64(table + 8):
            return address
        table += 16
    if v.atomic_add(record + 8 * FOUND, 1) == 0:
        v.st_i64(record + 8 * BLOCK, p)
        v.st_i64(record + 8 * KERNEL, v.ld_i64(here + 8 * ENTRY))
        v.st_i64(record + 8 * ADDRESS, address)
        v.st_i64(record + 8 * NBYTES, nbytes)
        v.st_i64(record + 8 * WRITES, writes)
    return v.ld_i64(record + 8 * SINK) if writes else v.ld_i64(record + 8 * ZEROS)
