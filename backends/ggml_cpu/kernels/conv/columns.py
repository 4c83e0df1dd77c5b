"""IM2COL, IM2COL_3D: unfold the input elements at each kernel position into a row."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import kernel
from ggml_cpu.kernels._common import F16, F32, Element
from ggml_cpu.kernels.conv._unfold import (
    plane_image,
    row_image,
    types_beside_kernel,
    unfolder,
    volume_image,
)


def _im2col(source: Element, target: Element) -> None:
    unfold, size = unfolder(source, target), target.size
    when = types_beside_kernel(target.name, source.name)

    @kernel("IM2COL", when=when, name=f"im2col_{source.name}_{target.name}")
    def im2col(p, ith, nth):
        n, ow, oh = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 0, 2)
        start, stop = v.split(ow * oh * v.ne(p, 0, 3), ith, nth)
        for u in range(start, stop):
            image = plane_image(p, ow, oh) if v.op_i32(p, 6) == 1 else row_image(p, ow)
            unfold(v.data(p, 0) + u * n * size, size, image, u)

    @kernel("IM2COL_3D", when=when, name=f"im2col_3d_{source.name}_{target.name}")
    def im2col_3d(p, ith, nth):
        n, ow, oh, channels = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 0, 2), v.op_i32(p, 9)
        od = v.ne(p, 0, 3) // (v.ne(p, 2, 3) // channels)
        image = volume_image(p, channels, ow, oh, od)
        start, stop = v.split(ow * oh * v.ne(p, 0, 3), ith, nth)
        for u in range(start, stop):
            unfold(v.data(p, 0) + u * n * size, size, image, u)


for _source in (F32, F16):
    for _target in (F32, F16):
        _im2col(_source, _target)
