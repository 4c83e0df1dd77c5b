"""Unfolding (im2col): copy the input elements at one kernel position into a column.

An image is a tuple of the following numbers. 1-d and 2-d images are volumes of depth 1.

- address: address of the first element
- (kw, kh, kd, c): size of the kernel and number of channels
- (ow, oh, od): size of the output, the kernel positions
- (w, h, d): size of the image
- strides, paddings, dilations: three each, for width, height and depth
- (b0, b1, b2, bc, bn): bytes between columns, rows, planes, channels and batches
"""

from __future__ import annotations

from collections.abc import Callable

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn
from ggml_cpu.kernels._common import Element
from ggml_py.tensor import Tensor


def unfolder(source: Element, target: Element) -> Function:
    """Return unfold(to, step, image, u): write the elements at position u, `step` bytes apart."""
    ld, st = source.ld, target.st

    @fn
    def unfold(to, step, image, u):
        """Write elements in the order [kw, kh, kd, c], with 0 outside of the image."""
        address, kernel, places, size, strides, paddings, dilations, nb = image
        kw, kh, kd, channels = kernel
        ow, oh, od = places
        w, h, depth = size
        x0 = u % ow * strides[0] - paddings[0]
        y0 = u // ow % oh * strides[1] - paddings[1]
        z0 = u // (ow * oh) % od * strides[2] - paddings[2]
        base = address + u // (ow * oh * od) * nb[4]
        for c in range(channels):
            for kz in range(kd):
                z = z0 + kz * dilations[2]
                for ky in range(kh):
                    y = y0 + ky * dilations[1]
                    row = base + c * nb[3] + z * nb[2] + y * nb[1]
                    inside = 0 <= z < depth and 0 <= y < h
                    for kx in range(kw):
                        x = x0 + kx * dilations[0]
                        if inside and 0 <= x < w:
                            st(to, ld(row + x * nb[0]))
                        else:
                            st(to, v.float32(0.0))
                        to += step

    return unfold


@fn
def plane_image(p, ow, oh):
    """Return the image of src1 [W, H, C, N] for src0 [KW, KH, C, ..].

    Op params: s0 s1 p0 p1 d0 d1.
    """
    return (
        v.data(p, 2),
        (v.ne(p, 1, 0), v.ne(p, 1, 1), 1, v.ne(p, 2, 2)),
        (ow, oh, 1),
        (v.ne(p, 2, 0), v.ne(p, 2, 1), 1),
        (v.op_i32(p, 0), v.op_i32(p, 1), 1),
        (v.op_i32(p, 2), v.op_i32(p, 3), 0),
        (v.op_i32(p, 4), v.op_i32(p, 5), 1),
        (v.nb(p, 2, 0), v.nb(p, 2, 1), 0, v.nb(p, 2, 2), v.nb(p, 2, 3)),
    )


@fn
def row_image(p, ow):
    """Return the image of src1 [W, C, N] for src0 [K, C, ..].

    Op params: s0 . p0 . d0.
    """
    return (
        v.data(p, 2),
        (v.ne(p, 1, 0), 1, 1, v.ne(p, 2, 1)),
        (ow, 1, 1),
        (v.ne(p, 2, 0), 1, 1),
        (v.op_i32(p, 0), 1, 1),
        (v.op_i32(p, 2), 0, 0),
        (v.op_i32(p, 4), 1, 1),
        (v.nb(p, 2, 0), 0, 0, v.nb(p, 2, 1), v.nb(p, 2, 2)),
    )


@fn
def volume_image(p, channels, ow, oh, od):
    """Return the image of src1 [W, H, D, C*N] for src0 [KW, KH, KD, ..].

    Op params: s0 s1 s2 p0 p1 p2 d0 d1 d2.
    """
    return (
        v.data(p, 2),
        (v.ne(p, 1, 0), v.ne(p, 1, 1), v.ne(p, 1, 2), channels),
        (ow, oh, od),
        (v.ne(p, 2, 0), v.ne(p, 2, 1), v.ne(p, 2, 2)),
        (v.op_i32(p, 0), v.op_i32(p, 1), v.op_i32(p, 2)),
        (v.op_i32(p, 3), v.op_i32(p, 4), v.op_i32(p, 5)),
        (v.op_i32(p, 6), v.op_i32(p, 7), v.op_i32(p, 8)),
        (v.nb(p, 2, 0), v.nb(p, 2, 1), v.nb(p, 2, 2), v.nb(p, 2, 3), v.nb(p, 2, 3) * channels),
    )


def types_beside_kernel(result: str, image: str) -> Callable[[Tensor], str]:
    """Return a `when` for the types of result and image; it does not check the kernel's type."""

    def check(node: Tensor) -> str:
        found = (node.type.name, node.source(1).type.name)
        if found == (result, image):
            return ""
        return f"needs {image} -> {result}; got {found[1]} -> {found[0]}"

    return check
