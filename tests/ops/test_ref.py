"""The reference against closed forms and other people's code."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from struct import unpack_from
from typing import Any

import gguf
import numpy as np
import pytest

from ggml_py import ops
from ggml_py.backend import HostBuffer, get_tensor, set_tensor
from ggml_py.graph import Graph
from ggml_py.ops.rope import IMROPE, MROPE, NEOX, NORMAL
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, I32, I64, TYPES, GGMLType
from ggml_ref.backend import RefDevice
from ggml_ref.quants import _nearest as nearest
from ggml_ref.quants import dequantizer, quantizer
from ggml_ref.values import elements, load, store
from tests.support.ik_forms import ADDED

RNG = np.random.default_rng(5)
Array = np.ndarray[Any, Any]


def leaf(values: Any, type: Any = F32) -> Tensor:
    """A tensor with these values (NumPy shape: slowest dimension first)."""
    array = np.asarray(values)
    t = Tensor(type, array.shape[::-1])
    t.buffer = HostBuffer(np.zeros(t.nbytes, np.uint8))
    store(t, array.reshape(t.ne[::-1]))
    return t


def compute(t: Tensor) -> Array:
    """The node's values, leading dimensions of 1 dropped."""
    graph = Graph()
    graph.build_forward_expand(t)
    Scheduler([RefDevice()]).plan(graph).run()
    values = get_tensor(t)
    return values.reshape(values.shape[next((i for i in range(3) if values.shape[i] != 1), 3) :])


def test_add_repeats_b() -> None:
    a = leaf(np.arange(6).reshape(2, 3))
    assert compute(ops.add(a, leaf([10, 20, 30]))).tolist() == [[10, 21, 32], [13, 24, 35]]


def test_mul_mat_is_b_times_a_transposed() -> None:
    a, b = RNG.normal(size=(2, 5, 8)), RNG.normal(size=(4, 3, 8))
    got = compute(ops.mul_mat(leaf(a), leaf(b)))
    for head in range(4):  # two consecutive heads of b share one of a
        np.testing.assert_allclose(got[head], b[head] @ a[head // 2].T, rtol=1e-5)


def test_mul_mat_id_chooses_matrices() -> None:
    experts, x = RNG.normal(size=(3, 4, 8)), RNG.normal(size=(2, 1, 8))
    got = compute(ops.mul_mat_id(leaf(experts), leaf(x), leaf([[2, 0], [1, 1]], I32)))
    np.testing.assert_allclose(got[0, 0], experts[2] @ x[0, 0], rtol=1e-5)
    np.testing.assert_allclose(got[0, 1], experts[0] @ x[0, 0], rtol=1e-5)
    np.testing.assert_allclose(got[1, 1], experts[1] @ x[1, 0], rtol=1e-5)


def test_mul_mat_id_of_a_matrix_elsewhere_is_zero() -> None:
    experts, x = RNG.normal(size=(2, 4, 8)), RNG.normal(size=(1, 1, 8))
    ids = leaf([[0, 1, 2, 3]], I32)
    got = compute(ops.mul_mat_id(leaf(experts), leaf(x), ids, first=1, of=4)).reshape(4, 4)
    np.testing.assert_allclose(got[1], experts[0] @ x[0, 0], rtol=1e-5)
    np.testing.assert_allclose(got[2], experts[1] @ x[0, 0], rtol=1e-5)
    assert not got[0].any() and not got[3].any()


def test_rms_norm() -> None:
    assert compute(ops.rms_norm(leaf([3, 4]), 0.0)) == pytest.approx(np.array([3, 4]) / 12.5**0.5)


def test_norms_of_zeros_need_eps() -> None:
    zeros = leaf([0.0, 0.0])
    for build in (ops.rms_norm, ops.norm, ops.l2_norm):
        assert compute(build(zeros, 1e-6)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("build", "x", "y"),
    [
        (ops.silu, 1.0, 1 / (1 + math.exp(-1))),
        (ops.softplus, 21.0, 21.0),
        (ops.softplus, 0.0, math.log(2)),
        (ops.gelu_erf, 1.0, 0.5 * (1 + math.erf(1 / math.sqrt(2)))),
        (ops.gelu, 1.0, 0.841192),
        (ops.round, -2.5, -3.0),
        (ops.sgn, -0.5, -1.0),
        (ops.hardswish, 1.0, 4 / 6),
        (ops.elu, -1.0, math.expm1(-1)),
    ],
)
def test_unary(build: Any, x: float, y: float) -> None:
    assert compute(build(leaf([x])))[0] == pytest.approx(y, rel=1e-5)


def test_soft_max_with_mask_and_sink() -> None:
    mask = leaf([0, -np.inf, 0])
    got = compute(ops.soft_max_ext(leaf([1.0, 5.0, 1.0]), mask, 1.0, 0.0, leaf([1.0])))
    np.testing.assert_allclose(got, [1 / 3, 0, 1 / 3], rtol=1e-6)


def test_alibi_slopes_of_twelve_heads() -> None:
    mask = leaf(np.full((1, 1, 1, 2), [0.0, -1.0]))
    got = compute(ops.soft_max_ext(leaf(np.zeros((12, 1, 2))), mask, 1.0, 8.0))[:, 0]
    slope = np.log(got[:, 0] / got[:, 1])
    np.testing.assert_allclose(slope[:8], 2.0 ** -np.arange(1, 9), rtol=1e-4)
    np.testing.assert_allclose(slope[8:], 2.0 ** -np.arange(0.5, 4), rtol=1e-4)


def test_flash_attention_is_attention() -> None:
    q, k, v = (RNG.normal(size=(h, n, 16)) for h, n in ((4, 3), (2, 7), (2, 7)))
    mask = leaf(np.triu(np.full((3, 7), -np.inf), 5), F16)
    got = compute(ops.flash_attn_ext(leaf(q), leaf(k), leaf(v), mask, 0.25))
    parts = []
    for head in range(4):
        scores = compute(ops.mul_mat(leaf(k[head // 2]), leaf(q[head])))
        p = compute(ops.soft_max_ext(leaf(scores), mask, 0.25, 0.0))
        parts.append(p @ v[head // 2])
    np.testing.assert_allclose(got, np.stack(parts, axis=1), atol=1e-5)


def rope(x: Array, pos: list[int], mode: int, **more: Any) -> Array:
    args = (mode, 0, 10000.0, 1.0, 0.0, 1.0, 32.0, 1.0)
    t = ops.rope_ext(leaf(x), leaf(pos, I32), None, x.shape[-1], *args, **more)
    return compute(t).reshape(x.shape)


@pytest.mark.parametrize("mode", [NORMAL, NEOX])
def test_rope_scores_depend_on_distance(mode: int) -> None:
    q, k = RNG.normal(size=(2, 1, 1, 64))
    near = rope(q, [7], mode) * rope(k, [4], mode)
    far = rope(q, [107], mode) * rope(k, [104], mode)
    assert near.sum() == pytest.approx(far.sum(), rel=1e-4)


def test_rope_rotates_the_first_pair_by_the_position() -> None:
    x = np.zeros((1, 1, 8))
    x[..., 0] = 1
    normal, neox = rope(x, [2], NORMAL).ravel(), rope(x, [2], NEOX).ravel()
    assert (normal[0], normal[1]) == pytest.approx((math.cos(2), math.sin(2)))
    assert (neox[0], neox[4]) == pytest.approx((math.cos(2), math.sin(2)))


@pytest.mark.parametrize("mode", [MROPE, IMROPE])
def test_multi_axis_rope_of_text_is_neox(mode: int) -> None:
    """Text has the same position on the first three axes."""
    x = RNG.normal(size=(3, 2, 64))
    sections = (11, 11, 10, 0)
    got = rope(x, [5, 6, 7] * 3 + [0] * 3, mode, sections=sections)
    np.testing.assert_allclose(got, rope(x, [5, 6, 7], NEOX), rtol=1e-6)


def test_gated_delta_net_without_gate_is_linear_attention() -> None:
    """g = 0, orthonormal keys and beta = 1: the state is the sum of v k^T."""
    size = 4
    k = np.eye(size)[None, :, None]  # [B, T, H, S]
    v, q = RNG.normal(size=(2, 1, size, 1, size))
    zeros, ones = np.zeros((1, size, 1, 1)), np.ones((1, size, 1, 1))
    state = np.zeros((1, 1, size, size))
    out = compute(ops.gated_delta_net(*(leaf(t) for t in (q, k, v, zeros, ones, state))))
    outputs, last = out[:size], out[size:]
    np.testing.assert_allclose(last, v[0, :, 0].T @ k[0, :, 0], rtol=1e-6)
    causal = np.tril(q[0, :, 0] @ k[0, :, 0].T)
    np.testing.assert_allclose(outputs, causal @ v[0, :, 0] / size**0.5, rtol=1e-5)


def test_gated_delta_net_in_two_parts_is_the_whole() -> None:
    t, size = 6, 8
    q, k, v = RNG.normal(size=(3, 1, t, 2, size)) * 0.3
    g, beta = -RNG.random((1, t, 2, 1)), RNG.random((1, t, 2, 1))
    state = RNG.normal(size=(1, 2, size, size))

    def run(first: int, last: int, s: Array) -> tuple[Array, Array]:
        parts = (leaf(x[:, first:last]) for x in (q, k, v, g, beta))
        out = compute(ops.gated_delta_net(*parts, leaf(s)))
        n = last - first
        return out[:n], out[n:].reshape(state.shape)

    whole, end = run(0, t, state)
    one, middle = run(0, 4, state)
    two, end_of_two = run(4, t, middle)
    np.testing.assert_allclose(np.concatenate([one, two]), whole, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(end_of_two, end, rtol=1e-4, atol=1e-6)


def test_ssm_scan_of_a_constant_input() -> None:
    """dt = softplus(x) = 1, A = -1, B = C = x = 1: s = 1 + e^-1 + e^-2 ..."""
    one, t = math.log(math.e - 1), 4
    ones = leaf(np.ones((1, t, 1, 1)))
    got = compute(
        ops.ssm_scan(
            leaf(np.zeros((1, 1, 1, 1))),
            ones,
            leaf(np.full((1, t, 1), one)),
            leaf([[-1.0]]),
            ones,
            ones,
            leaf([0], I32),
        )
    )
    expected = np.cumsum(np.exp(-np.arange(t)))
    np.testing.assert_allclose(got, [*expected, expected[-1]], rtol=1e-6)


def test_ssm_conv_is_a_correlation() -> None:
    sx, c = RNG.normal(size=(3, 10)), RNG.normal(size=(3, 4))
    got = compute(ops.ssm_conv(leaf(sx), leaf(c)))
    for channel in range(3):
        np.testing.assert_allclose(
            got[:, channel], np.correlate(sx[channel], c[channel]), rtol=1e-5
        )


def test_solve_tri_solves_and_ignores_the_upper_triangle() -> None:
    a, x = RNG.uniform(0.5, 1, (5, 5)), RNG.normal(size=(5, 2))
    got = compute(ops.solve_tri(leaf(a), leaf(np.tril(a) @ x)))
    np.testing.assert_allclose(got, x, rtol=1e-4)


def test_set_rows_leaves_other_rows_alone() -> None:
    cache, before = leaf(RNG.normal(size=(4, 32)), BY_NAME["q8_0"]), None
    before = elements(cache).copy()
    compute(ops.set_rows(cache, leaf(np.ones((1, 32))), leaf([2], I64)))
    after = elements(cache)
    assert (after[0, 0, [0, 1, 3]] == before[0, 0, [0, 1, 3]]).all()
    np.testing.assert_allclose(load(cache)[0, 0, 2], 1, rtol=1e-3)


def test_cpy_of_blocks_keeps_their_bytes() -> None:
    a = leaf(RNG.normal(size=(2, 64)), BY_NAME["q4_0"])
    b = leaf(np.zeros((2, 64)), BY_NAME["q4_0"])
    compute(ops.cpy(a, b))
    assert (elements(a) == elements(b)).all()


def test_cast_to_integers_truncates() -> None:
    assert compute(ops.cast(leaf([1.9, -1.9, 0.5]), I32)).tolist() == [1, -1, 0]


def test_acc_honours_all_dimensions() -> None:
    a, b = leaf(np.zeros((3, 2, 2, 2))), leaf(np.ones((2, 1, 1, 1)))
    got = compute(ops.acc(a, b, *a.nb[1:], a.nb[3] + a.nb[0]))
    assert np.argwhere(got).tolist() == [[1, 0, 0, 1], [2, 0, 0, 1]]


def test_a_type_without_reference_is_refused_with_the_reason() -> None:
    weight = Tensor(GGMLType(99, "q9_9", 256, 100), (256, 4), name="w")
    assert "q9_9" in RefDevice().why_not(ops.mul_mat(weight, Tensor(F32, (256, 1))))


KNOWN = [t for t in TYPES.values() if dequantizer(t) is not None and t not in ADDED]

# What gguf does not decode: value j of a block, after the structs of ggml-common.h.
BY_HAND: dict[str, Callable[[bytes, int], float]] = {
    "f16": lambda b, j: unpack_from("<e", b)[0],
    "q8_1": lambda b, j: unpack_from("<e", b)[0] * unpack_from("<b", b, 4 + j)[0],
    "q8_K": lambda b, j: unpack_from("<f", b)[0] * unpack_from("<b", b, 4 + j)[0],
    "q1_0": lambda b, j: unpack_from("<e", b)[0] * (1 if b[2 + j // 8] >> j % 8 & 1 else -1),
    "q2_0": lambda b, j: unpack_from("<e", b)[0] * ((b[2 + j // 4] >> 2 * (j % 4) & 3) - 1),
}


def _trit(b: bytes, j: int) -> int:
    """Digit j: of 16 bytes with five digits, then of 8, then of 2 with four."""
    first, size = next((s, n) for s, n in ((0, 16), (80, 8), (120, 2)) if j < s + 5 * n or n == 2)
    at = {16: 0, 8: 16, 2: 24}[size] + (j - first) % size
    return b[at] * 3 ** ((j - first) // size) % 256 * 3 // 256 - 1


BY_HAND["pq2_0"] = BY_HAND["q2_0"]
BY_HAND["ptq1_0"] = lambda b, j: unpack_from("<e", b, 26)[0] * _trit(b, j)


def decoded(type: GGMLType, raw: Array) -> Array:
    if by_hand := BY_HAND.get(type.name):
        rows = [[by_hand(b.tobytes(), j) for j in range(type.block_size)] for b in raw]
        return np.array(rows, np.float32)
    return gguf.dequantize(raw, gguf.GGMLQuantizationType[type.name.upper()])


@pytest.mark.parametrize("type", KNOWN, ids=str)
def test_dequantize_equals_gguf(type: GGMLType) -> None:
    raw = RNG.integers(0, 256, (50, type.type_size), np.uint8)
    with np.errstate(all="ignore"):
        got, expected = dequantizer(type)(raw), decoded(type, raw)
    np.testing.assert_array_equal(got, expected.reshape(got.shape))


# 16 bytes of `_blocks` in a checkpoint of gpt-oss; as llama.cpp's converter stores them; the values
# of transformers 5.23.0 (`convert_moe_packed_tensors`) with a scale of 126.
CHECKPOINT, CONVERTED = "0b30557a9fc4e90e33587da2c7ec1136", "3b308053d5752aa77fc9c4ec191e6e30"
MXFP4 = [
    -0.75, 0.0, 0.0, 0.75, 1.5, 1.5, -0.5, 3.0, -3.0, -0.25, 1.0, -1.0, -0.25, -2.0, -2.0, 0.0,
    0.75, 0.75, -0.0, 1.5, -1.5, 3.0, 0.5, -0.5, 3.0, -1.0, -1.0, -2.0, 0.25, 0.25, 2.0, 0.75,
]  # fmt: skip


def test_mxfp4_has_the_values_of_checkpoints() -> None:
    codes = np.array([(b & 15, b >> 4) for b in bytes.fromhex(CHECKPOINT)], np.uint8).ravel()
    converted = codes[:16] | codes[16:] << 4
    assert converted.tobytes().hex() == CONVERTED
    block = np.concatenate([np.array([126], np.uint8), converted])
    np.testing.assert_array_equal(dequantizer(BY_NAME["mxfp4"])(block[None]).ravel(), MXFP4)


# SHA-256 (first 12 digits) of what ggml's quantize_row_*_ref makes of noise(64 * 256).
GGML = {
    "q4_0": "2b4e7e17195a",
    "q4_1": "898770fa3f9f",
    "q5_0": "ac6fa4c8e70f",
    "q5_1": "faf2ebfe1d3e",
    "q8_0": "70b31cf54f82",
    "q8_1": "5823133ea1f2",
    "q2_K": "5fc32795523f",
    "q3_K": "17e2e6534861",
    "q4_K": "59ba166c83cf",
    "q5_K": "020ea303f984",
    "q6_K": "c96987394a90",
    "q8_K": "70024086b7ca",
    "iq4_nl": "cfedc5b481a4",
    "iq4_xs": "51f9e7e23b2e",
    "tq2_0": "1d6c5ae2355e",
    "mxfp4": "a23cd421f410",
    "q1_0": "48fab066b3a3",
    "q2_0": "f54e0f595984",
}


def noise(n: int) -> Array:
    """The same float32 numbers everywhere, each 32 of them smaller than those before."""
    bits = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(2654435761) % np.uint64(2**32)
    size = np.repeat(np.float32(1) / np.arange(1, n // 32 + 1, dtype=np.float32), 32)
    return (bits / 2.0**31 - 1).astype(np.float32) * size


@pytest.mark.parametrize("name", GGML)
def test_quantize_equals_ggml(name: str) -> None:
    raw = quantizer(BY_NAME[name])(noise(64 * 256))
    assert hashlib.sha256(raw).hexdigest()[:12] == GGML[name]


# The same of what is not quantized as by ggml (see quants/_grid.py).
OURS = {
    "iq1_s": "a6a9fddb08b4",
    "iq1_m": "8cfd1d1def0e",
    "iq2_xxs": "a9afda6eae3d",
    "iq2_xs": "57795e54a202",
    "iq2_s": "2b32c3bdb085",
    "iq3_xxs": "dabb80a4e2d9",
    "iq3_s": "d3b0e04dcb2c",
}


@pytest.mark.parametrize("name", OURS)
def test_quantize_gives_the_same_bytes_everywhere(name: str) -> None:
    raw = quantizer(BY_NAME[name])(noise(64 * 256))
    assert hashlib.sha256(raw).hexdigest()[:12] == OURS[name]


@pytest.mark.parametrize("name", OURS)
def test_quantize_uses_all_bits(name: str) -> None:
    """Every bit of a block is 0 in one and 1 in another, but for the sign and the exponent of d."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(256, 16, 16)) * rng.random((256, 16, 1))
    raw = np.frombuffer(quantizer(BY_NAME[name])(x), np.uint8).reshape(256, -1)
    ones = np.unpackbits(raw, axis=1).sum(axis=0)
    assert ((ones == 0) | (ones == 256)).sum() <= 6


@pytest.mark.parametrize("name", ["iq1", "iq2_xxs", "iq3_s"])
def test_points_of_a_codebook_are_found(name: str) -> None:
    """And what is near: the point found is hardly ever farther than the nearest of all."""
    search = nearest.search(name)
    points = search.points
    assert (search.nearest(points) == np.arange(len(points))).all()
    rng = np.random.default_rng(3)
    x = rng.uniform(points.min(), points.max(), (500, points.shape[1])).astype(np.float32)
    distances = ((x[:, None] - points) ** 2).sum(axis=-1)
    found = distances[np.arange(len(x)), search.nearest(x)]
    assert (found == distances.min(axis=1)).mean() > 0.95
    assert found.sum() < 1.005 * distances.min(axis=1).sum()


@pytest.mark.parametrize("name", OURS)
def test_zeros_are_quantized_as_zeros(name: str) -> None:
    raw = np.frombuffer(quantizer(BY_NAME[name])(np.zeros(512)), np.uint8).reshape(2, -1)
    assert not dequantizer(BY_NAME[name])(raw).any()


# Root mean square error of a normal variable, from below and above.
ERRORS = {
    "f16": (1e-4, 4e-4), "bf16": (1e-3, 3e-3), "q8_0": (0.003, 0.008), "q6_K": (0.01, 0.025),
    "q5_K": (0.025, 0.045), "q5_1": (0.03, 0.045), "q5_0": (0.03, 0.06), "q4_K": (0.05, 0.08),
    "iq4_xs": (0.06, 0.09), "iq4_nl": (0.06, 0.1), "q4_1": (0.06, 0.1), "q4_0": (0.07, 0.11),
    "mxfp4": (0.08, 0.15), "q3_K": (0.1, 0.17), "q2_K": (0.2, 0.35),
    "iq3_s": (0.1, 0.14), "iq3_xxs": (0.14, 0.19), "iq2_s": (0.2, 0.25), "iq2_xs": (0.25, 0.3),
    "iq2_xxs": (0.3, 0.34), "iq1_m": (0.35, 0.43), "iq1_s": (0.4, 0.47),
    "iq6_k": (0.01, 0.02), "q6_0": (0.015, 0.025), "iq5_k": (0.03, 0.05), "iq5_ks": (0.03, 0.05),
    "iq4_k": (0.07, 0.09), "iq4_ks": (0.07, 0.1), "iq4_kss": (0.1, 0.15), "q8_kv": (0.005, 0.01),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_quantization_error_is_what_the_bits_allow(name: str) -> None:
    x = np.random.default_rng(0).normal(size=(64, 256)).astype(np.float32)
    t = BY_NAME[name]
    raw = np.frombuffer(quantizer(t)(x), np.uint8).reshape(-1, t.type_size)
    error = np.sqrt(((dequantizer(t)(raw).reshape(x.shape) - x) ** 2).mean())
    low, high = ERRORS[name]
    assert low < error < high


STABLE = ["q4_K", "q5_K", "q6_K", "q3_K", "q2_K", "iq4_xs", "q1_0", "q2_0", "iq2_s", "iq3_s"]


@pytest.mark.parametrize("name", STABLE)
def test_quantizing_again_changes_little(name: str) -> None:
    x = np.random.default_rng(1).normal(size=(4, 256)).astype(np.float32)
    t = BY_NAME[name]

    def there_and_back(values: Array) -> Array:
        raw = np.frombuffer(quantizer(t)(values), np.uint8).reshape(-1, t.type_size)
        return dequantizer(t)(raw).reshape(x.shape)

    once = there_and_back(x)
    np.testing.assert_allclose(there_and_back(once), once, atol=0.15 * np.abs(once).max())


def test_tq1_0_known_block() -> None:
    """243 = 3^5 combinations in a byte: 0xFF..: all digits 2, so all values d."""
    raw = np.zeros((1, 54), np.uint8)
    raw[0, :52] = 255
    raw[0, 52:] = np.frombuffer(np.float16(0.5).tobytes(), np.uint8)
    assert (dequantizer(BY_NAME["tq1_0"])(raw) == 0.5).all()


def test_strided_views_of_every_type_are_read_in_place() -> None:
    for t in (F32, F16, BY_NAME["bf16"], BY_NAME["q8_0"]):
        a = leaf(RNG.normal(size=(3, 4, 32)), t)
        part = ops.permute(ops.view_3d(a, 32, 2, 3, a.nb[1], a.nb[2], a.nb[1]), 0, 2, 1, 3)
        got = compute(ops.cont(part) if t.block_size == 1 else ops.cast(part, F32))
        np.testing.assert_array_equal(got, load(a)[0, :, 1:3].swapaxes(0, 1).astype(np.float32))


def test_set_and_get_tensor_round_trip() -> None:
    t = Tensor(F32, (3, 2))
    t.buffer = RefDevice().alloc(24)
    set_tensor(t, np.arange(6, dtype=np.float32))
    assert get_tensor(t).ravel().tolist() == [0, 1, 2, 3, 4, 5]
