"""OpenCL launcher of the op in ggml_py/ops/upscale.py."""

from __future__ import annotations

import numpy as np

from ggml_opencl.conditions import all_typed
from ggml_opencl.table import Launch, items, table
from ggml_py.ops.upscale import ALIGN_CORNERS, ANTIALIAS, MODES
from ggml_py.tensor import Tensor

F = np.float32  # as ggml computes them: at the edge between two pixels it matters


def scale(new: int, old: int, aligned: bool) -> float:
    if aligned and min(new, old) > 1:
        new, old = new - 1, old - 1
    return float(F(new) / F(old))


@table.op("UPSCALE", all_typed((0, -1), "f32"))
def upscale(node: Tensor) -> list[Launch]:
    a, word = node.source(0), node.param("mode")
    mode, aligned = word & 0xFF, bool(word & ALIGN_CORNERS)
    scales = [scale(node.ne[i], a.ne[i], aligned and i < 2) for i in range(4)]
    tensors, n = (a, node), items(node.n_elements)
    if mode == MODES["nearest"]:
        return [Launch("upscale", "nearest", tensors, n, tuple(scales))]
    smooth = bool(word & ANTIALIAS)
    wide = [max(1.0, 1.0 / s) if smooth else 1.0 for s in scales[:2]]
    middle = 0.0 if aligned else 0.5
    scalars = (*scales, middle, int(mode == MODES["bicubic"]), int(smooth), *wide)
    return [Launch("upscale", "interpolate", tensors, n, scalars)]
