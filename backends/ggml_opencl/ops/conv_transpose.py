"""OpenCL launchers of the ops in ggml_py/ops/conv_transpose.py."""

from __future__ import annotations

from ggml_opencl.conditions import FLOATS, READABLE, all_typed
from ggml_opencl.ops.conv import to_images
from ggml_opencl.table import Launch, defines, items, table
from ggml_py.tensor import Tensor

SUMMED = all_typed((0, 1, -1), *FLOATS)


def _launch(a: Tensor, b: Tensor, dst: Tensor, stride: int) -> list[Launch]:
    n, given = items(dst.n_elements), defines(IMAGES=1)
    return [Launch("conv_transpose", "conv_transpose", (a, b, dst), n, (stride,), given)]


@table.op("CONV_TRANSPOSE_1D", SUMMED)
def conv_transpose_1d(node: Tensor) -> list[Launch]:
    a, b = node.sources()
    return _launch(to_images(a), to_images(b), to_images(node), node.param("s0"))


@table.op("CONV_TRANSPOSE_2D", SUMMED)
def conv_transpose_2d(node: Tensor) -> list[Launch]:
    a, b = node.sources()
    return _launch(a, b, node, node.param("stride"))


@table.op("COL2IM_1D", all_typed((0, -1), *READABLE))
def col2im_1d(node: Tensor) -> list[Launch]:
    a = node.source(0)
    scalars = (a.ne[0] // node.param("oc"), node.param("s0"), node.param("p0"))
    n, given = items(node.n_elements), defines(SIGNALS=1)
    return [Launch("conv_transpose", "col2im_1d", (a, node), n, scalars, given)]
