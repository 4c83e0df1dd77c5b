"""Views and the ops that move elements, over random shapes, strides and types: each device makes of
them what NumPy does. Views are tested on their own, in chains, and under the ops that read them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from operator import mul
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ggml_py import ops
from ggml_py.backend import Device
from ggml_py.backend.registry import device as device_named
from ggml_py.errors import ShapeError
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F32, I32, I64
from tests.support.strided import (
    DTYPES,
    Array,
    Shape,
    Value,
    accepted,
    array,
    block,
    compute,
    leaf,
    memory,
    permuted,
    result,
    shapes,
    shapes_or_empty,
    stored,
    strided,
    values,
    viewed,
)

ALL = sorted(DTYPES)
PLAIN = [name for name in ALL if block(name) == 1]
FLOATS = ["f32", "f16", "bf16"]
Data = st.DataObject


def cases(n: int) -> Any:
    """n examples, the same in every run."""
    return settings(
        max_examples=n,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


@pytest.fixture(params=["ref", "cpu"])
def device(request: pytest.FixtureRequest) -> Device:
    return device_named(request.param)


def same(got: Array, want: Array) -> bool:
    return got.shape == want.shape and got.tobytes() == want.astype(got.dtype).tobytes()


# ---- chains of views


def next_view(data: Data, v: Value) -> Value:
    """A view of a view, of any kind its source allows."""
    kinds: list[Callable[[Data, Value], Value]] = [any_permutation, any_window]
    if v.t.type.block_size == 1:
        kinds.append(turned)
    if v.t.is_contiguous():
        kinds.append(any_reshape)
    return data.draw(st.sampled_from(kinds))(data, v)


def any_permutation(data: Data, v: Value) -> Value:
    first = int(v.t.type.block_size > 1)
    return permuted(v, (*range(first), *data.draw(st.permutations(range(first, 4)))))


def turned(data: Data, v: Value) -> Value:
    return Value(ops.transpose(v.t), v.x.swapaxes(2, 3), v.root, v.start)


def any_reshape(data: Data, v: Value) -> Value:
    ne = data.draw(shape_of(v.x.size))
    t = ops.reshape(v.t, ne[0] * v.t.type.block_size, *ne[1:])
    return Value(t, v.x.reshape(ne[::-1]), v.root, v.start)


def any_window(data: Data, v: Value) -> Value:
    """Any shape and strides that stay inside the root, elements seen twice among them."""
    size, room = v.t.type.type_size, v.root.size - v.start
    if room < size:
        return viewed(v, (0, 1, 1, 1), (size, size, size, size), 0)
    ne = [1, 1, 1, 1]
    nb = [size, *(size * data.draw(st.integers(0, 9)) for _ in range(3))]
    offset = size * data.draw(st.integers(0, min(9, room // size - 1)))
    left = (room - offset) // size - 1
    for i in data.draw(st.permutations(range(4))):
        step = nb[i] // size
        ne[i] = data.draw(st.integers(1, min(5, left // step + 1 if step else 5)))
        left -= (ne[i] - 1) * step
    return viewed(v, tuple(ne), tuple(nb), offset)


@st.composite
def shape_of(draw: Any, n: int) -> Shape:
    """Four numbers whose product is n."""
    if n == 0:
        return tuple(draw(st.permutations([0, 1, 2, 3])))
    ne = [1, 1, 1, 1]
    for factor in (2, 3, 5, 7, 11, 13):
        while n % factor == 0:
            ne[draw(st.integers(0, 3))] *= factor
            n //= factor
    ne[0] *= n
    return tuple(ne)


def chain(data: Data, device: Device, type: str) -> Value:
    v = leaf(device, type, data.draw(shapes_or_empty))
    for _ in range(data.draw(st.integers(0, 5))):
        v = next_view(data, v)
    return v


def shown(t: Tensor, root: Array) -> Array:
    """What the tensor's own shape, strides and offset show of its root's bytes."""
    ne = (t.ne[0] // t.type.block_size, *t.ne[1:])
    return array(ne, DTYPES[t.type.name], root, t.view_offs, t.nb)


@cases(300)
@given(st.data(), st.sampled_from(ALL))
def test_chains_show_the_elements_that_numpy_shows(data, type):
    v = chain(data, device_named("null"), type)
    assert same(shown(v.t, v.root), v.x)
    if v.x.size:
        low, high = np.lib.array_utils.byte_bounds(v.x)
        assert v.t.nbytes == high - low
        assert v.t.is_contiguous() == v.x.flags.c_contiguous
        assert v.t.view_src is None or v.t.view_src.view_src is None


@cases(80)
@given(data=st.data(), type=st.sampled_from(ALL))
def test_dense_copies_of_chains(device, data, type):
    v = chain(data, device, type)
    build = ops.dup if type in ("f32", "q8_0") and data.draw(st.booleans()) else ops.cont
    assert same(result(device, build(v.t)), v.x)


@cases(40)
@given(data=st.data(), type=st.sampled_from(PLAIN))
def test_a_copy_in_another_shape(device, data, type):
    v = chain(data, device, type)
    ne = data.draw(shape_of(v.x.size))
    assert same(result(device, ops.cont(v.t, *ne)), v.x.reshape(ne[::-1]))


@cases(60)
@given(data=st.data())
def test_arithmetic_on_chains(device, data):
    """a * 2 + b with b repeated, both seen through views; copies of both views are views again."""
    a = chain(data, device, "f32")
    inner = tuple(data.draw(st.sampled_from([1, n]) if n else st.just(1)) for n in a.t.ne)
    b = strided(data.draw, device, "f32", inner)
    doubled = accepted(device, lambda x: ops.scale(x, 2.0), a.t)
    t = accepted(device, ops.add, ops.transpose(doubled), ops.transpose(b.t))
    assert same(result(device, t), (2 * a.x + b.x).swapaxes(2, 3))


# ---- views that break their rule


@cases(150)
@given(st.data())
def test_a_window_is_refused_just_if_it_leaves_the_root(data):
    """All its elements' bytes, counted one by one, or the rule."""
    v = chain(data, device_named("null"), "f16")
    ne = data.draw(st.tuples(*[st.integers(0, 3)] * 4))
    nb = (2, *data.draw(st.tuples(*[st.sampled_from([0, 2, 6, 10, 40, -2])] * 3)))
    offset = data.draw(st.sampled_from([0, 2, 8, 50, -2]))
    starts = [
        v.start + offset + sum(i * b for i, b in zip(at, nb, strict=True))
        for at in product(*map(range, ne))
    ]
    inside = all(s >= 0 and s + 2 <= v.root.size for s in starts)
    if inside and min(*nb, offset) >= 0:
        w = viewed(v, ne, nb, offset)
        assert same(shown(w.t, w.root), w.x)
        return
    with pytest.raises(ShapeError):
        ops.view_4d(v.t, *ne, *nb[1:], offset)


@cases(100)
@given(st.data(), shapes_or_empty)
def test_a_reshape_is_refused_just_if_numpy_had_to_copy_or_cut(data, ne):
    v = strided(data.draw, device_named("null"), "i16", data.draw(shapes_or_empty))
    # NumPy finds every empty array contiguous, ggml looks at its strides
    dense = v.x.flags.c_contiguous if v.x.size else v.t.is_contiguous()
    if v.x.size == prod(ne) and dense:
        assert same(shown(ops.reshape(v.t, *ne), v.root), v.x.reshape(ne[::-1]))
        return
    with pytest.raises(ShapeError):
        ops.reshape(v.t, *ne)


@cases(100)
@given(shapes_or_empty, shapes_or_empty)
def test_a_repeat_is_refused_just_if_it_is_not_a_whole_number(ne, to):
    t = Tensor(F32, ne)
    whole = any(np.array_equal(np.multiply(ne, n), to) for n in product(*[range(6)] * 4))
    if 0 in to if 0 in ne else whole:
        assert ops.repeat_4d(t, *to).ne == to
        return
    with pytest.raises(ShapeError):
        ops.repeat_4d(t, *to)


def test_rows_are_whole_blocks():
    t = Tensor(BY_NAME["q8_0"], (64, 3))
    for build in (
        lambda: ops.reshape(t, 48, 4),
        lambda: ops.view_1d(t, 33, 0),
        lambda: ops.cont(t, 48, 4),
        lambda: ops.cast(Tensor(F32, (33,)), t.type),
    ):
        with pytest.raises(ShapeError, match="multiple of 32 elements"):
            build()


# ---- ops that move elements


@cases(100)
@given(data=st.data(), types=st.tuples(*[st.sampled_from([*FLOATS, "i32"])] * 2))
def test_cpy_between_types_shapes_and_strides(device, data, types):
    """Elements go in order into another shape; nothing else of the destination changes."""
    if "i32" in types and set(types) & {"f16", "bf16"}:
        types = (types[0], types[0])
    a = strided(data.draw, device, types[0], data.draw(shapes_or_empty))
    b = strided(data.draw, device, types[1], data.draw(shape_of(a.x.size)))
    compute(device, ops.cpy(a.t, b.t))
    b.x[...] = stored(values(a.x, types[0]).reshape(b.x.shape), types[1])
    assert memory(b.t.view_src).tobytes() == b.root.tobytes()


@cases(60)
@given(data=st.data(), type=st.sampled_from(ALL), shape=shapes)
def test_cpy_of_the_same_bits(device, data, type, shape):
    a, b = (strided(data.draw, device, type, shape) for _ in "ab")
    compute(device, ops.cpy(a.t, b.t))
    b.x[...] = a.x
    assert memory(b.t.view_src).tobytes() == b.root.tobytes()


@cases(60)
@given(data=st.data(), types=st.tuples(*[st.sampled_from(FLOATS)] * 2))
def test_cast(device, data, types):
    v = chain(data, device, types[0])
    want = stored(values(v.x, types[0]), types[1])
    assert same(result(device, ops.cast(v.t, BY_NAME[types[1]])), want)


@cases(80)
@given(data=st.data(), type=st.sampled_from(PLAIN), ne=shapes_or_empty, dim=st.integers(0, 3))
def test_concat(device, data, type, ne, dim):
    other = (*ne[:dim], data.draw(st.integers(0, 4)), *ne[dim + 1 :])
    a, b = (strided(data.draw, device, type, shape) for shape in (ne, other))
    got = result(device, accepted(device, lambda x, y: ops.concat(x, y, dim), a.t, b.t))
    assert same(got, np.concatenate([a.x, b.x], axis=3 - dim))


@cases(80)
@given(data=st.data(), type=st.sampled_from(PLAIN), times=st.tuples(*[st.integers(0, 3)] * 4))
def test_repeat(device, data, type, times):
    a = strided(data.draw, device, type, data.draw(shapes))
    ne = tuple(n * m for n, m in zip(a.t.ne, times, strict=True))
    got = result(device, accepted(device, lambda x: ops.repeat_4d(x, *ne), a.t))
    assert same(got, np.tile(a.x, times[::-1]))


@cases(80)
@given(data=st.data(), pads=st.tuples(*[st.integers(0, 4)] * 8), circular=st.booleans())
def test_pad(device, data, pads, circular):
    a = strided(data.draw, device, "f32", data.draw(shapes if circular else shapes_or_empty))
    build, mode = (ops.pad_ext_circular, "wrap") if circular else (ops.pad_ext, "constant")
    got = result(device, accepted(device, lambda x: build(x, *pads), a.t))
    widths = [pads[i : i + 2] for i in (6, 4, 2, 0)]
    assert same(got, np.pad(a.x, widths, mode=mode))


@cases(100)
@given(data=st.data(), inplace=st.booleans(), kind=st.sampled_from(["acc", "f32", "i32"]))
def test_set_and_acc(device, data, inplace, kind):
    """b into a window of a: every step-th row, plane and batch from some element on."""
    adds = kind == "acc"
    type = "f32" if adds else kind
    a = leaf(device, type, data.draw(shapes))
    first = [data.draw(st.integers(0, n - 1)) for n in a.t.ne]
    steps = [1, *(data.draw(st.integers(1, 2)) for _ in range(3))]
    most = [-(-(n - f) // s) for n, f, s in zip(a.t.ne, first, steps, strict=True)]
    ne = tuple(data.draw(st.integers(0 if data.draw(st.booleans()) else 1, m)) for m in most)
    b = strided(data.draw, device, type, ne)
    nb = [s * n for s, n in zip(steps, a.t.nb, strict=True)]
    offset = sum(f * n for f, n in zip(first, a.t.nb, strict=True))
    build = ops.acc if adds else ops.set_
    t = accepted(device, lambda y: build(a.t, y, *nb[1:], offset, inplace), b.t)
    want = a.x.copy()
    part = tuple(slice(f, f + n * s, s) for f, n, s in zip(first, ne, steps, strict=True))[::-1]
    want[part] = want[part] + b.x if adds else b.x
    assert same(result(device, t), want)
    assert same(memory(a.t).view(a.x.dtype).reshape(a.x.shape), want if inplace else a.x)


@cases(80)
@given(data=st.data(), ne=shapes)
def test_set_stays_inside_its_result(device, data, ne):
    """Whatever window of a strided a is accepted: it lies inside the dense result."""
    a = strided(data.draw, device, "f32", ne)
    nb = tuple(4 * data.draw(st.integers(0, 12)) for _ in range(3))
    b = leaf(device, "f32", data.draw(shapes))
    offset = 4 * data.draw(st.integers(0, 12))
    try:
        ops.set_(a.t, b.t, *nb, offset)
    except ShapeError:
        return
    want = np.ascontiguousarray(a.x)
    window = np.ndarray(b.x.shape, "<f4", want.data, offset, (*nb[::-1], 4))
    t = accepted(device, lambda x: ops.set_(x, b.t, *nb, offset), a.t)
    if written_once(window):
        window[...] = b.x
        assert same(result(device, t), want)


def written_once(x: Array) -> bool:
    """Whether no two elements are the same."""
    starts = [sum(map(mul, at, x.strides)) for at in np.ndindex(x.shape)]
    return len(set(starts)) == x.size


@cases(80)
@given(data=st.data(), type=st.sampled_from([*FLOATS, "i32"]), shape=shapes)
def test_get_rows(device, data, type, shape):
    a = strided(data.draw, device, type, shape)
    _, rows, n2, n3 = shape
    ids = strided(data.draw, device, "i32", (data.draw(st.integers(0, 6)), n2, n3, 1))
    put(ids, ids.x % rows)
    got = result(device, accepted(device, lambda x: ops.get_rows(x, ids.t), a.t))
    i3, i2, _ = np.ogrid[:n3, :n2, :1]
    want = a.x[i3, i2, ids.x[0]]
    assert same(got, want if type == "i32" else values(want, type).astype("<f4"))


def put(v: Value, x: Array) -> None:
    """Give a tensor other values."""
    v.x[...] = x
    assert v.t.view_src is not None and v.t.view_src.buffer is not None
    v.t.view_src.buffer.write(0, v.root)


@cases(80)
@given(data=st.data(), type=st.sampled_from(FLOATS), wide=st.booleans(), shape=shapes)
def test_set_rows(device, data, type, wide, shape):
    """Rows of b, each to a row of its own of a window of a cache."""
    n, rows, n2, n3 = shape
    r = data.draw(st.integers(0, rows))
    cache = leaf(device, type, (n, rows + 2, n2, n3))
    dst = viewed(cache, shape, cache.t.nb, cache.t.nb[1])
    b = leaf(device, "f32", (n, r, n2, n3))
    order = data.draw(st.permutations(range(rows)))
    idx = strided(data.draw, device, "i64" if wide else "i32", (r, 1, 1, 1))
    put(idx, np.array(order[:r]).reshape(idx.x.shape))
    assert idx.t.type is (I64 if wide else I32)
    compute(device, ops.set_rows(dst.t, b.t, idx.t))
    dst.x[:, :, idx.x[0, 0, 0]] = stored(b.x, type)
    assert memory(cache.t).tobytes() == cache.root.tobytes()
