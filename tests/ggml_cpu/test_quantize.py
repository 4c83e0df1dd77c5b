"""Quantizers make the bytes that the real ggml made (tests/data/quantize)."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pytest

from dev.record.golden.quantize import BLOCKS, DATA
from ggml_cpu.quantize.run import can_quantize, needs_importance, quantizer
from ggml_cpu.quantize.tables import tables
from ggml_cpu.quantize.types import quantizers
from ggml_py import ops
from ggml_py.backend import CompileOptions, registry
from ggml_py.errors import BackendError
from ggml_py.grids import grid
from ggml_py.types import BY_NAME
from ggml_ref.quants import dequantizer
from tests.support.products import leaf

RECORDED = dict(np.load(DATA / BLOCKS))
X: npt.NDArray[np.float32] = RECORDED.pop("x").astype(np.float32)
WEIGHTS: npt.NDArray[np.float32] = RECORDED.pop("weights").astype(np.float32)
ZEROS = 4  # the row that has groups of zeros between others
RNG = np.random.default_rng(5)


# SHA-256 (first 12 digits) of the bytes that ik_llama.cpp's ggml_quantize_chunk makes of X.
IK = {
    "iq2_k": "1a1f2c3e09ce",
    "iq2_k.weighted": "c0b0cf801c3c",
    "iq3_k": "1b5adeb4ec34",
    "iq3_k.weighted": "f626e682058c",
    "iq4_k": "3bdeb0983051",
    "iq4_k.weighted": "a10265aece97",
    "iq5_k": "f9fe42884b35",
    "iq5_k.weighted": "ce24d5bdc6b8",
    "iq6_k": "4a1689b9ed13",
    "iq6_k.weighted": "ab0cd1de1fe9",
    "iq4_ks": "d23cc540726e",
    "iq4_ks.weighted": "77d23f561393",
    "iq5_ks": "4057f3925092",
    "iq5_ks.weighted": "f029c9f8d3e3",
    "q6_0": "c1dfd3137609",
    "q6_0.weighted": "9eeb6d457856",
    "iq2_ks": "da40651b85d0",
    "iq2_ks.weighted": "439262957bcf",
    "iq3_ks": "662fd22bb07a",
    "iq3_ks.weighted": "12f74161ba9d",
    "iq4_kss": "bd09936453d2",
    "iq4_kss.weighted": "36d20ad7a619",
    "iq2_kl": "06db420f3402",
    "iq2_kl.weighted": "a98ba06695f9",
    "iq1_bn": "ffbe57261abd",
    "iq2_bn": "0287e7dc17ae",
    "iq1_kt": "748c30302d9d",
    "iq1_kt.weighted": "216098a19107",
    "iq2_kt": "5fa9f7b1d438",
    "iq2_kt.weighted": "66cfd3a1c2b5",
    "iq3_kt": "1de1c244fddf",
    "iq3_kt.weighted": "1fbd4e1c2508",
    "iq4_kt": "368494ff1c0e",
    "iq4_kt.weighted": "cb1ae3374434",
}


@pytest.mark.parametrize("name", IK)
def test_bytes_of_ik_llama_cpp(name: str) -> None:
    type, _, weighted = name.partition(".")
    found = quantizer(BY_NAME[type], bool(weighted))(X, WEIGHTS if weighted else None)
    assert hashlib.sha256(found.tobytes()).hexdigest()[:12] == IK[name]


def test_rows_longer_than_the_first_ones() -> None:
    """Memory for what is found in a row grows."""
    quantize = quantizer(BY_NAME["iq4_ks"], False)
    short = quantize(X[:, :256], None)
    np.testing.assert_array_equal(quantize(np.tile(X, 3), None)[:, 4:140].shape, short[:, 4:].shape)
    np.testing.assert_array_equal(quantize(X[:, :256], None), short)


def test_all_are_recorded() -> None:
    ways = {
        (name, way)
        for name, q in quantizers().items()
        for way, make in (("", q.plain), (".weighted", q.weighted))
        if make
    }
    assert {name + way for name, way in ways} == set(RECORDED) | set(IK)


@pytest.mark.parametrize("name", RECORDED)
def test_bytes(name: str) -> None:
    type, _, weighted = name.partition(".")
    found = quantizer(BY_NAME[type], bool(weighted))(X, WEIGHTS if weighted else None)
    same = (found == RECORDED[name]).all(axis=1)
    assert list(np.flatnonzero(~same)) == ([ZEROS] if type == "iq3_s" else [])


def test_groups_of_zeros_in_iq3_s() -> None:
    """ggml does not step over one (`continue` before `qs += bs4`), and the groups after it stand in
    the places before their own; ours are in theirs."""
    decode = dequantizer(BY_NAME["iq3_s"])
    assert decode is not None
    ours = quantizer(BY_NAME["iq3_s"], False)(X, None)
    rows = [raw[ZEROS].reshape(-1, BY_NAME["iq3_s"].type_size) for raw in (ours, RECORDED["iq3_s"])]
    mine, theirs = (float(((decode(raw).ravel() - X[ZEROS]) ** 2).sum()) for raw in rows)
    assert mine < 0.1 * theirs


def test_just_below_a_power_of_two() -> None:
    """As in ggml, whose logarithm rounds: with the scale of the power itself."""
    power = np.float32(2.0**-5)
    x = np.stack([np.full(32, value) for value in (power, np.nextafter(power, np.float32(0)))])
    found = quantizer(BY_NAME["mxfp4"], False)(x, None)
    assert found[:, 0].tolist() == [127 - 5 - 2] * 2


def test_a_copy_makes_the_blocks_that_quantizing_makes() -> None:
    """Also of values just below a power of two, of zeros, and of scales that are subnormal."""
    tops = np.array([2.0**-5, np.nextafter(np.float32(2.0**-5), np.float32(0)), 0, 2.0**-126])
    x = (tops[:, None] * RNG.uniform(-1, 1, (4, 32))).astype(np.float32)
    x[:, 7] = tops
    copy = ops.cast(leaf("f32", x), BY_NAME["mxfp4"])
    device = registry.device("cpu")
    copy.buffer = device.alloc(copy.nbytes)
    device.compile([copy], CompileOptions()).run()
    found = copy.buffer.read(0, copy.nbytes).reshape(4, -1)
    assert (found == quantizer(BY_NAME["mxfp4"], False)(x, None)).all()


@pytest.mark.parametrize("name", ["q4_0", "q5_1", "q6_K", "iq3_s"])
@pytest.mark.parametrize("n_rows", [1, 3, 17])
def test_rows_do_not_depend_on_each_other(name: str, n_rows: int) -> None:
    """Whatever shares a vector with them, and at the end of the last, incomplete one."""
    x = RNG.standard_normal((n_rows, 768), np.float32)
    weights = RNG.random(768, np.float32)
    make = quantizer(BY_NAME[name], True)
    whole = make(x, weights)
    assert whole.shape == (n_rows, BY_NAME[name].row_size(768))
    assert all((make(x[i : i + 1], weights) == whole[i]).all() for i in range(n_rows))


@pytest.mark.parametrize("name", ["q4_K", "iq2_xs"])
def test_importance_matters(name: str) -> None:
    """The error where it is large is less than without."""
    x = RNG.standard_normal((8, 256), np.float32)
    weights = np.where(np.arange(256) % 8 < 2, np.float32(100), np.float32(0.01))
    decode = dequantizer(BY_NAME[name])
    assert decode is not None

    def error(importance: npt.NDArray[np.float32]) -> float:
        raw = quantizer(BY_NAME[name], True)(x, importance)
        back = decode(raw.reshape(-1, BY_NAME[name].type_size)).reshape(x.shape)
        return float((weights * (x - back) ** 2).sum())

    assert error(weights) < 0.8 * error(np.ones(256, np.float32))


def test_refusals() -> None:
    assert needs_importance(BY_NAME["iq1_s"]) and not needs_importance(BY_NAME["iq3_s"])
    with pytest.raises(BackendError, match="needs an importance"):
        quantizer(BY_NAME["iq2_xxs"], False)
    assert not can_quantize(BY_NAME["q8_K"])
    with pytest.raises(BackendError, match="has no quantizer"):
        quantizer(BY_NAME["q8_K"], False)


def test_lists_have_the_nearest_points() -> None:
    """By one search that looks at all points."""
    found, points = tables("iq3_xxs", 2), grid("iq3_xxs").astype(int)
    places = np.searchsorted(np.unique(points), points)
    code = next(c for c in range(4096) if found.of_code[c] < 0)
    other = code >> 3 * np.arange(4) & 7
    squares = ((places - other) ** 2).sum(1)
    near = np.unique(squares)[:2]
    at = -1 - found.of_code[code]
    listed = found.lists[at + 1 : at + 1 + found.lists[at]]
    assert set(listed >> 16) == set(np.flatnonzero(np.isin(squares, near)))
    assert (found.codes[listed >> 16] == listed & 0xFFFF).all()
    assert (np.diff(squares[listed >> 16]) >= 0).all()
