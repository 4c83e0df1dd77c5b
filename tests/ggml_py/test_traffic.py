"""What nodes move and compute."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.ops.traffic import count_bytes, flops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, I32, I64

Q8_0 = BY_NAME["q8_0"]


def test_all_sources_and_the_result() -> None:
    x = Tensor(F32, (10, 3))
    assert count_bytes(ops.add(x, Tensor(F32, (10,)))) == 4 * (30 + 10 + 30)
    assert count_bytes(ops.add(x, x)) == 4 * (30 + 30)
    assert count_bytes(ops.cont(ops.view(x, (4, 3), (10,)))) == 4 * (12 + 12)
    assert flops(ops.add(x, x)) == 0


def test_products() -> None:
    y = ops.mul_mat(Tensor(Q8_0, (64, 5)), Tensor(F32, (64, 2)))
    assert count_bytes(y) == 2 * 34 * 5 + 4 * 64 * 2 + 4 * 5 * 2
    assert flops(y) == 2 * 64 * 5 * 2


def test_only_chosen_matrices_are_read() -> None:
    matrices, x = Tensor(F32, (8, 4, 10)), Tensor(F32, (8, 1, 3))
    for n_used, share in ((1, 3 / 10), (2, 6 / 10), (8, 1)):
        y = ops.mul_mat_id(matrices, x, Tensor(I32, (n_used, 3)))
        rest = 4 * (8 * 3 + n_used * 3 + 4 * n_used * 3)
        assert count_bytes(y) == round(share * 4 * 320) + rest
        assert flops(y) == 2 * 8 * 4 * n_used * 3


def test_only_chosen_rows() -> None:
    rows = ops.get_rows(Tensor(Q8_0, (64, 1000)), Tensor(I32, (3,)))
    assert count_bytes(rows) == 3 * (4 + 2 * 34 + 4 * 64)
    cache = Tensor(F16, (64, 1000))
    kept = ops.set_rows(cache, Tensor(F32, (64, 3)), Tensor(I64, (3,)))
    assert count_bytes(kept) <= 3 * (8 + 2 * 4 * 64)


def test_attention_reads_keys_and_values_once() -> None:
    q, k, v = Tensor(F32, (32, 2, 4)), Tensor(F16, (32, 100, 1)), Tensor(F16, (32, 100, 1))
    y = ops.flash_attn_ext(q, k, v, Tensor(F16, (100, 2)), 1.0, 0.0, 0.0)
    assert flops(y) == 2 * 2 * 4 * 100 * (32 + 32)
    assert count_bytes(y) == 4 * 256 + 2 * (3200 + 3200) + 2 * 200 + 4 * 256


def test_a_sum_without_its_first_part() -> None:
    parts = [Tensor(F32, (10, 3)) for _ in range(2)]
    assert count_bytes(ops.all_reduce([None, *parts])) == 4 * (30 + 30 + 30)
