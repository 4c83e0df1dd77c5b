"""SSM_CONV with SILU, and with a bias before that."""

from __future__ import annotations

from ggml_opencl.table import Launch, fuse, items
from ggml_py.fusion import f32_rows
from ggml_py.pattern import Match
from ggml_py.patterns.ssm import CONV_BIAS_SILU, CONV_SILU
from ggml_py.tensor import Tensor


def _conv(kernel: str, m: Match, *more: Tensor) -> list[Launch]:
    """The result may have another shape than the convolution, but its values in their order."""
    dst = Tensor(m["y"].type, m["conv"].ne)
    dst.buffer, dst.offset = m["y"].buffer, m["y"].offset
    tensors = (m["x"], m["weight"], *more, dst)
    return [Launch("fused/ssm", kernel, tensors, items(dst.n_elements))]


@fuse(CONV_BIAS_SILU, when=f32_rows("x", "weight", "bias"))
def ssm_conv_bias_silu(m: Match) -> list[Launch]:
    return _conv("ssm_conv_bias_silu", m, m["bias"])


@fuse(CONV_SILU, when=f32_rows("x", "weight"))
def ssm_conv_silu(m: Match) -> list[Launch]:
    return _conv("ssm_conv_silu", m)
