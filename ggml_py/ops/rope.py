"""Ops of rotary position embedding (RoPE)."""

from __future__ import annotations

from collections.abc import Sequence

from ggml_py.ops.registry import node, op, refuse, require, view_result
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I32

NORMAL, NEOX, MROPE, VISION, IMROPE = 0, 2, 8, 24, 40

_PARAMS = (
    "4x n_dims:i mode:i 4x n_ctx_orig:i freq_base:f freq_scale:f ext_factor:f attn_factor:f "
    "beta_fast:f beta_slow:f section_t:i section_h:i section_w:i section_e:i n_offs:i"
)


@op("ROPE", _PARAMS, inplace=True, at_weights=False)
def rope_ext(
    a: Tensor,
    pos: Tensor,
    freq_factors: Tensor | None,
    n_dims: int,
    mode: int,
    n_ctx_orig: int,
    freq_base: float,
    freq_scale: float,
    ext_factor: float,
    attn_factor: float,
    beta_fast: float,
    beta_slow: float,
    sections: Sequence[int] = (0, 0, 0, 0),
    n_offs: int = 0,
    inplace: bool = False,
) -> Tensor:
    """Rotate pairs of channels by position-dependent angles (ggml.c:ggml_rope_ext).

    a [d, H, T, B]; pos I32 [T], or [4 T] section by section for the multi-axis modes;
    freq_factors F32, one for each pair. Pairs are (2i, 2i+1) in mode NORMAL, (i, i + n_dims/2)
    otherwise, counted from channel n_offs (ggml.c:ggml_rope_set_offset); the channels outside of
    these n_dims are copied. ext_factor, attn_factor and the betas are YaRN's
    (arXiv 2309.00071).
    """
    per_token = 4 if mode & MROPE else 1
    if not (pos.type is I32 and pos.n_elements == pos.ne[0] == per_token * a.ne[2]):
        refuse(f"rope: pos must be i32 with {per_token} per token", a, pos)
    if not (0 < n_dims <= a.ne[0] - n_offs and n_dims % 2 == 0 and n_offs >= 0):
        rule = "rope: n_dims must be even and fit in a row from n_offs on, got n_dims = "
        refuse(f"{rule}{n_dims} and n_offs = {n_offs}", a)
    if freq_factors is not None:
        pairs = n_dims if mode == VISION else n_dims // 2
        fits = freq_factors.type is F32 and freq_factors.ne[0] >= pairs
        require(fits, f"rope: freq_factors must be f32 with {pairs} elements", freq_factors)
    if ext_factor != 0 and not (beta_fast >= 0 and beta_slow >= 0):
        rule = "rope: beta_fast and beta_slow must be numbers of rotations of at least 0, got "
        refuse(f"{rule}{beta_fast} and {beta_slow}", a)
    turns = tuple(sections)[:4] if mode & MROPE else (0, 0, 0, 0)
    yarn = (ext_factor, attn_factor, beta_fast, beta_slow)
    params = (n_dims, mode, n_ctx_orig, freq_base, freq_scale, *yarn, *turns, n_offs)
    src = (a, pos) if freq_factors is None else (a, pos, freq_factors)
    if inplace:
        return view_result("ROPE", a, *src, params=params)
    return node("ROPE", a.type, a.ne, *src, params=params)


@op("ROPE_BACK", _PARAMS, inplace=True)
def rope_ext_back(
    a: Tensor,
    pos: Tensor,
    freq_factors: Tensor | None,
    n_dims: int,
    mode: int,
    n_ctx_orig: int,
    freq_base: float,
    freq_scale: float,
    ext_factor: float,
    attn_factor: float,
    beta_fast: float,
    beta_slow: float,
    sections: Sequence[int] = (0, 0, 0, 0),
    n_offs: int = 0,
) -> Tensor:
    """Backpropagate a gradient through rope_ext: rotate by negated angles
    (ggml.c:ggml_rope_ext_back, ggml_rope_multi_back).
    """
    yarn = (ext_factor, attn_factor, beta_fast, beta_slow)
    base = (n_dims, mode, n_ctx_orig, freq_base, freq_scale)
    t = rope_ext(a, pos, freq_factors, *base, *yarn, sections, n_offs)
    t.op = "ROPE_BACK"
    return t


def rope_multi(
    a: Tensor,
    pos: Tensor,
    freq_factors: Tensor | None,
    n_dims: int,
    sections: Sequence[int],
    mode: int,
    n_ctx_orig: int,
    freq_base: float,
    freq_scale: float,
    ext_factor: float,
    attn_factor: float,
    beta_fast: float,
    beta_slow: float,
) -> Tensor:
    """Apply RoPE with four position axes; `sections` has the number of pairs that each axis
    rotates (ggml.c:ggml_rope_multi).
    """
    yarn = (ext_factor, attn_factor, beta_fast, beta_slow)
    base = (n_ctx_orig, freq_base, freq_scale)
    return rope_ext(a, pos, freq_factors, n_dims, mode, *base, *yarn, sections)
