"""Quantizer of iq1_kt. Rows begin with d f32.

Block: codes, and the upper bits of four indices, u8 [8] | lower bytes u8 [32] | bits 8 to 11
u8 [16], of indices i and i + 16.
"""

from __future__ import annotations

from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import STEPS, load_integers, put_byte
from ggml_cpu.quantize.points import load_codes
from ggml_cpu.quantize.trellis import INDICES, weigh_points
from ggml_cpu.quantize.trellis_points import FIRST, trellis_tables
from ggml_cpu.quantize.trellis_rows import quantize_trellis


@fn
def put_codes(m):
    for g in range(8):
        code = load_integers(m + STEPS, g)
        for i in range(4):
            code = code | ((load_codes(m + INDICES, 4 * g + i) >> 12) << (4 + i))
        put_byte(m, g, code)
    for i in range(32):
        put_byte(m, 8 + i, load_codes(m + INDICES, i))
    for i in range(16):
        low = (load_codes(m + INDICES, i) >> 8) & 15
        put_byte(m, 40 + i, low | (((load_codes(m + INDICES, i + 16) >> 8) & 15) << 4))


weights = weigh_points(False)
tables = trellis_tables((13, 8, 32, False, FIRST))
rows = quantize_trellis(True, 1.07, put_codes, 56)
register("iq1_kt", weights.plain, weights.weighted, rows=rows, tables=tables)
