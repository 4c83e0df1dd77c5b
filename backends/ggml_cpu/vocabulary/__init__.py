"""The SIMD API for kernels. Importing it imports Numba.

Vectors are Numba values with Python's operators; addresses are int64. Names without a lane count
use the native width (`LANES` f32 lanes), names with one have that width: `f32x16_load`. The same
kernel source runs on AVX-512, AVX2, NEON and other CPUs. Only amx.py, atomic.py, half.py, dot.py,
dot_bf16.py, math.py, memory.py and special.py depend on CPU features.
"""

# ruff: noqa: F401  (the names below are the API)

from __future__ import annotations

from numpy import float32, float64

from ggml_cpu.target import I8_BIAS, LANES, TILE

from . import lanes as _lanes
from . import memory as _memory
from . import operators as _operators
from . import scalar as _scalar
from . import tiles as _tiles
from .amx import (
    amx_configure,
    amx_dot_bf16,
    amx_dot_bytes,
    amx_load,
    amx_release,
    amx_store,
    amx_stream,
    amx_zero,
)
from .atomic import (
    atomic_add,
    atomic_load,
    atomic_store,
    call_kernel,
    nanoseconds,
    pause,
    sched_yield,
    sleep_while,
    wake,
)
from .block import data, extra, local, nb, ne, op_f32, op_i32, shared, split, split_aligned
from .dot import dot2, dot4, dot4_biased, dot4_i8, dot_pairs, matrix_dot
from .dot_bf16 import bf16_of, dotbf16, matrix_dotbf16
from .functions import (
    verf,
    vexp,
    vgelu,
    vgelu_erf,
    vgelu_quick,
    vlog,
    vlog1p,
    vsigmoid,
    vsilu,
    vsincos,
    vsoftplus,
    vtanh,
)
from .half import bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16
from .lanes import (
    asr,
    bits_of_f32,
    concat,
    even,
    evens,
    every_third,
    f32_of_bits,
    high,
    iota,
    lane,
    low,
    mask16,
    mask64,
    mix_thirds,
    odd,
    odds,
    quarter,
    repeat_all,
    repeat_each,
    reverse,
    rotate,
    select,
    set_lane,
    shuffle,
    swap_pairs,
    vall,
    vany,
    zip_halves,
    zip_high,
    zip_low,
)
from .math import copysign, fma, vabs, vceil, vfloor, vmax, vmin, vround, vsqrt, vtrunc
from .memory import prefetch, prefetch_write, store, store_n, store_nt, table
from .reduce import lowest_bit, vbits, vmaxval, vminval, vsum, vsum64
from .special import lookup16, scale_by_power_of_two
from .transpose import transpose

for _module in (_lanes, _memory, _scalar, _tiles):
    globals().update(_module.WORDS)
