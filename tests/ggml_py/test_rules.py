"""Builders refuse what breaks their rule, with the rule and the tensors in the message."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ggml_py import ops
from ggml_py.errors import ShapeError
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32, I32


def t(*ne: int, type: object = F32, name: str = "x") -> Tensor:
    return Tensor(type, ne, name=name)  # type: ignore[arg-type]


def rope(a: Tensor, pos: Tensor, n_dims: int) -> Tensor:
    return ops.rope_ext(a, pos, None, n_dims, 0, 0, 1e4, 1, 0, 1, 32, 1)


def delta_net(state: Tensor) -> Tensor:
    x = t(4, 2, 3)
    return ops.gated_delta_net(x, x, x, t(1, 2, 3), t(1, 2, 3), state)


BROKEN: list[tuple[str, Callable[[], Tensor]]] = [
    ("b must repeat to a's shape", lambda: ops.add(t(4, 3), t(4, 2))),
    ("equal ne0", lambda: ops.mul_mat(t(4, 3), t(5, 3))),
    ("must not be transposed", lambda: ops.mul_mat(ops.transpose(t(4, 3)), t(3, 2))),
    ("must be square", lambda: ops.solve_tri(t(4, 3), t(1, 3))),
    ("must be contiguous", lambda: ops.reshape(ops.transpose(t(4, 3)), 12)),
    ("must have the same number of elements", lambda: ops.reshape(t(4, 3), 13)),
    ("must not be negative", lambda: ops.reshape(t(3, 2), -2, -3)),
    ("cont: .* must not be negative", lambda: ops.cont(t(3, 2), -2, -3)),
    ("ends at byte", lambda: ops.view_1d(t(4), 5, 0)),
    ("ends at byte 72", lambda: ops.view(t(4, 4), (4, 2), (4,), 10)),
    ("permutation of 0..3", lambda: ops.permute(t(4, 3), 0, 0, 1, 2)),
    ("all dimensions but 1", lambda: ops.concat(t(4, 3), t(5, 3), 1)),
    ("the same type", lambda: ops.concat(t(4, 3), t(4, 3, type=F16), 1)),
    ("ids must be i32", lambda: ops.get_rows(t(4, 3), t(2))),
    ("same number of elements", lambda: ops.cpy(t(4, 3), t(4, 2))),
    ("length 4, got 5", lambda: ops.argsort_top_k(t(4), 5)),
    ("order must be asc or desc", lambda: ops.argsort(t(4), "up")),
    ("pos must be i32", lambda: rope(t(8, 2, 3), t(2, type=I32), 8)),
    (
        r"beta_slow must be numbers of rotations .* -1.0",
        lambda: ops.rope_ext(t(8, 2, 3), t(3, type=I32), None, 8, 0, 9, 1e4, 1, 1, 1, 32, -1.0),
    ),
    ("must be even", lambda: rope(t(8, 2, 3), t(3, type=I32), 7)),
    ("mask must be", lambda: ops.soft_max_ext(t(4, 3), t(5, 3), 1.0, 0.0)),
    ("ALiBi", lambda: ops.soft_max_ext(t(4, 3), None, 1.0, 8.0)),
    (
        "H_kv must divide H",
        lambda: ops.flash_attn_ext(t(8, 2, 3), t(8, 4, 2), t(8, 4, 2), None, 1.0),
    ),
    ("sx must be", lambda: ops.ssm_conv(t(6, 5), t(4, 3))),
    ("state must be", lambda: delta_net(t(4, 4, 3))),
    ("window ends", lambda: ops.acc(t(4, 3), t(4, 3), 16, 48, 48, 4)),
]


@pytest.mark.parametrize(("rule", "build"), BROKEN, ids=[r for r, _ in BROKEN])
def test_refused(rule: str, build: Callable[[], Tensor]) -> None:
    with pytest.raises(ShapeError, match=rule) as info:
        build()
    assert "; got x" in str(info.value)


def test_params_are_packed_as_ggml_packs_them() -> None:
    import struct

    assert ops.rms_norm(t(4), 1e-5).op_params() == struct.pack("<f", 1e-5).ljust(64, b"\0")
    assert ops.silu(t(4)).op_params()[:4] == struct.pack("<i", 10)
    turned = ops.rope_ext(t(8, 2, 3), t(3, type=I32), None, 8, 2, 77, 1e4, 0.5, 0, 1, 32, 1)
    words = (0, 8, 2, 0, 77, 1e4, 0.5, 0, 1, 32, 1, *[0] * 5)
    assert turned.op_params() == struct.pack("<5i6f5i", *words)
    assert turned.param("freq_scale") == 0.5
    assert ops.view_1d(t(4), 2, 8).op_params()[:8] == struct.pack("<q", 8)
