"""The scale that quantizes a group best (ggml-quants.c:make_qx_quants, make_qkx2_quants)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants._blocks import F32, TINY, extreme, ordered_sum

U = npt.NDArray[np.uint8]


def symmetric(x: F32, n_max: int) -> tuple[F32, U]:
    """Return scales [..., 1] and values 0 .. 2·n_max-1 (n_max is zero) of groups x [..., n].

    19 scales around -n_max/extreme are tried; each is refitted by least squares with weights x².
    """
    top = extreme(x)
    zero = np.abs(top) < TINY
    top = np.where(zero, np.float32(1), top)
    weight = x * x

    def fit(inverse_scale: F32) -> tuple[F32, F32, F32]:
        q = np.clip(np.rint(inverse_scale * x), -n_max, n_max - 1)
        return q, ordered_sum(weight * x * q), ordered_sum(weight * q * q)

    q, xq, qq = fit(np.float32(-n_max) / top)
    scale = np.where(qq > 0, xq / np.where(qq > 0, qq, 1), np.float32(0))
    best = scale * xq
    for step in (*range(-9, 0), *range(1, 10)):
        q2, xq, qq = fit(-(np.float32(n_max) + np.float32(0.1) * np.float32(step)) / top)
        better = (qq > 0) & (xq * xq > best * qq)
        q = np.where(better, q2, q)
        scale = np.where(better, xq / np.where(better, qq, 1), scale)
        best = np.where(better, scale * xq, best)
    return np.where(zero, np.float32(0), scale), np.where(zero, 0, q + n_max).astype(np.uint8)


def with_minimum(
    x: F32, weight: F32, q_max: int, start: float, step: float, n_steps: int, absolute: bool = False
) -> tuple[F32, F32, U]:
    """Return scales, minima [..., 1] and q 0 .. q_max of groups x [..., n]: x = scale·q - minimum.

    n_steps+1 scales are tried, each refitted by weighted least squares; the smallest weighted
    squared (or absolute) error wins. As in ggml, a winner's minimum is where later tries start.
    """
    low, high = np.minimum(x.min(-1, keepdims=True), 0), x.max(-1, keepdims=True)
    flat = high == low
    high = np.where(flat, low + 1, high)
    sum_w, sum_x = ordered_sum(weight), ordered_sum(weight * x)

    def round_levels(inverse_scale: F32, minimum: F32) -> F32:
        return np.clip(np.rint(inverse_scale * (x - minimum)), 0, q_max)

    def error(q: F32, scale: F32, minimum: F32) -> F32:
        diff = scale * q + minimum - x
        return ordered_sum(weight * (np.abs(diff) if absolute else diff * diff))

    inverse_scale = np.float32(q_max) / (high - low)
    scale, minimum, q = np.float32(1) / inverse_scale, low, round_levels(inverse_scale, low)
    least = error(q, scale, minimum)
    for i in range(n_steps + 1):
        levels = np.float32(start) + np.float32(step) * np.float32(i) + q_max
        q2 = round_levels(levels / (high - minimum), minimum)
        s_q, s_qq = ordered_sum(weight * q2), ordered_sum(weight * q2 * q2)
        s_xq = ordered_sum(weight * q2 * x)
        det = sum_w * s_qq - s_q * s_q
        solvable = det > 0
        det = np.where(solvable, det, 1)
        scale2 = np.divide(sum_w * s_xq - sum_x * s_q, det)
        minimum2 = np.divide(s_qq * sum_x - s_q * s_xq, det)
        above = minimum2 > 0
        scale2 = np.where(above, s_xq / np.where(above, s_qq, 1), scale2)
        minimum2 = np.where(above, np.float32(0), minimum2)
        error2 = error(q2, scale2, minimum2)
        better = solvable & (error2 < least)
        q, least = np.where(better, q2, q), np.where(better, error2, least)
        scale, minimum = np.where(better, scale2, scale), np.where(better, minimum2, minimum)
    scale, minimum = np.where(flat, np.float32(0), scale), np.where(flat, low, minimum)
    return scale, -minimum, np.where(flat, 0, q).astype(np.uint8)


def refine(x: F32, n_max: int) -> tuple[F32, U]:
    """Return levels like symmetric's, moved one by one while that helps (make_q3_quants)."""
    top = extreme(x)
    zero = np.abs(top) < TINY
    weight = x * x
    q = np.rint(np.float32(-n_max) / np.where(zero, np.float32(1), top) * x)
    q = np.clip(q, -n_max, n_max - 1)
    xq, qq = ordered_sum(weight * x * q)[..., 0], ordered_sum(weight * q * q)[..., 0]
    active = ~zero[..., 0]
    for _ in range(5):
        changed = np.zeros_like(active)
        for i in range(x.shape[-1]):
            xi, wi, qi = x[..., i], weight[..., i], q[..., i]
            rest_xq, rest_qq = xq - wi * xi * qi, qq - wi * qi * qi
            usable = rest_xq > 0
            new = np.clip(np.rint(xi * rest_qq / np.where(usable, rest_xq, 1)), -n_max, n_max - 1)
            new_xq, new_qq = rest_xq + wi * xi * new, rest_qq + wi * new * new
            better = active & usable & (new != qi) & (new_qq > 0)
            better &= new_xq * new_xq * qq > xq * xq * new_qq
            q[..., i] = np.where(better, new, qi)
            xq, qq = np.where(better, new_xq, xq), np.where(better, new_qq, qq)
            changed |= better
        active = active & changed
    scale = np.where(qq > 0, xq / np.where(qq > 0, qq, 1), np.float32(0))[..., None]
    return np.where(zero, np.float32(0), scale), np.where(zero, 0, q + n_max).astype(np.uint8)
