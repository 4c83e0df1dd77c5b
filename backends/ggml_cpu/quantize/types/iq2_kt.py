"""Quantizer of iq2_kt. Rows begin with d f32. Block: codes u8 [4] | u16 [32]."""

from __future__ import annotations

from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import STEPS, put_bytes
from ggml_cpu.quantize.points import load_codes
from ggml_cpu.quantize.steps import put_nibbles
from ggml_cpu.quantize.trellis import INDICES, weigh_points
from ggml_cpu.quantize.trellis_points import FIRST, trellis_tables
from ggml_cpu.quantize.trellis_rows import quantize_trellis


@fn
def put_codes(m):
    put_nibbles(m, 0, 4, m + STEPS)
    for i in range(32):
        put_bytes(m, 4 + 2 * i, 2, load_codes(m + INDICES, i))


weights = weigh_points(False)
tables = trellis_tables((16, 8, 8, False, FIRST))
rows = quantize_trellis(False, 1.0, put_codes, 68)
register("iq2_kt", weights.plain, weights.weighted, rows=rows, tables=tables)
