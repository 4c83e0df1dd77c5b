"""NumPy references of the ops in ggml_py/ops/window.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.table import table
from ggml_ref.values import Values


@table.op("WIN_PART")
def win_part(node: Tensor, a: Values) -> Values:
    npx, npy, w = node.params
    _, height, width, c = a.shape
    a = np.pad(a[0], [(0, npy * w - height), (0, npx * w - width), (0, 0)])
    return a.reshape(npy, w, npx, w, c).swapaxes(1, 2)


@table.op("WIN_UNPART")
def win_unpart(node: Tensor, a: Values) -> Values:
    w, (c, width, height, _) = node.param("w"), node.ne
    npx = -(-width // w)
    whole = a.reshape(-1, npx, w, w, c).swapaxes(1, 2).reshape(-1, npx * w, c)
    return whole[:height, :width]


@table.op("GET_REL_POS")
def get_rel_pos(node: Tensor, a: Values) -> Values:
    q, k = np.ogrid[: node.ne[2], : node.ne[1]]
    chosen: Values = a[0, 0][q - k + node.ne[1] - 1]
    return chosen


@table.op("ADD_REL_POS")
def add_rel_pos(node: Tensor, a: Values, pw: Values, ph: Values) -> Values:
    n = pw.shape[-1]
    return a.reshape(*pw.shape[:-1], n, n) + ph[..., :, None] + pw[..., None, :]
