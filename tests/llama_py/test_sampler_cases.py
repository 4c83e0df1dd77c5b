"""What llama.cpp's own tests ask of its samplers (tests/test-sampling.cpp)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from llama_py.sampler.candidates import Candidates, Filter
from llama_py.sampler.draw import Dist
from llama_py.sampler.dry import Breakers, dry
from llama_py.sampler.filters import min_p, temperature, top_k, top_n_sigma, top_p, typical_p, xtc
from llama_py.sampler.mt19937 import Mt19937
from llama_py.sampler.penalties import penalties

FOUR = [0.1, 0.2, 0.3, 0.4]
FALLING = FOUR[::-1]
FIFTHS = [0.2] * 5
QUARTERS = [0.25] * 4


def of(probabilities: Sequence[float]) -> Candidates:
    logits = np.log(np.array(probabilities, np.float32))
    return Candidates(np.arange(logits.size), logits)


def check(part: Filter | None, before: Sequence[float], after: Sequence[float]) -> None:
    """The probabilities that are left, in their order; None leaves everything."""
    left = part(of(before)) if part else of(before)
    np.testing.assert_allclose(left.probabilities(), after, atol=1e-5)


def test_one_candidate_takes_as_many_random_numbers_as_two() -> None:
    alone, two, many = Dist(Mt19937(4242)), Dist(Mt19937(4242)), of([1 / 256] * 256)
    alone.draw(of([1.0]))
    two.draw(of([0.5, 0.5]))
    assert [alone.draw(many) for _ in range(4)] == [two.draw(many) for _ in range(4)]


@pytest.mark.parametrize("exponent", [1.0, 2.0])
def test_temperature(exponent: float) -> None:
    check(temperature(1.0, 0.0, exponent), FOUR, FOUR)
    check(temperature(0.0, 0.0, exponent), FOUR, [0, 0, 0, 1])


def test_top_k() -> None:
    check(top_k(1), FOUR, [1])
    check(top_k(3), FOUR, [0.44444, 0.33333, 0.22222])
    check(top_k(4), FOUR, FALLING)
    check(top_k(0), FOUR, FOUR)


def test_top_p() -> None:
    check(top_p(0), FOUR, [1])
    check(top_p(0.7), FOUR, [0.571429, 0.428571])
    check(top_p(0.8), FOUR, [0.44444, 0.33333, 0.22222])
    check(top_p(1), FOUR, FOUR)


@pytest.mark.parametrize(
    ("p", "n"),
    [(0, 4), (0.24, 4), (0.26, 3), (0.49, 3), (0.51, 2), (0.74, 2), (0.76, 1), (1, 1), (1.05, 1)],
)
def test_min_p(p: float, n: int) -> None:
    best = np.array(FOUR[-n:])
    check(min_p(p), FOUR, list(best / best.sum()))


@pytest.mark.parametrize(("threshold", "n"), [(0.09, 1), (0.19, 2), (0.29, 3), (0.39, 4)])
def test_xtc(threshold: float, n: int) -> None:
    rare = np.array(FALLING[-n:])
    check(xtc(0.99, threshold, 0, Mt19937(0)), FALLING, list(rare / rare.sum()))


def test_typical() -> None:
    check(typical_p(0.5), [0.97, 0.01, 0.01, 0.01], [1])
    check(typical_p(0.5), [0.4, 0.2, 0.2, 0.2], [1 / 3] * 3)


@pytest.mark.parametrize(
    ("text", "factor", "less", "after"),
    [
        ([0], 50, 0, [0, 0.25, 0.25, 0.25, 0.25]),
        ([0, 1, 2], 50, 0, [0, 0, 0, 0.5, 0.5]),
        ([0, 1, 2, 0, 0], 50, 0, [0, 0, 0, 0.5, 0.5]),
        ([0], 1, 5, [0.000011, 0.249997, 0.249997, 0.249997, 0.249997]),
        ([0, 1, 2], 1, 5, [0.000023, 0.000023, 0.000023, 0.499966, 0.499966]),
        ([0, 1, 2, 0, 0], 1, 5, [0, 0.000023, 0.000023, 0.499977, 0.499977]),
    ],
)
def test_penalties(text: list[int], factor: float, less: float, after: list[float]) -> None:
    part = penalties(len(text), factor, less, less)
    assert part is not None
    for id in text:
        part.accept(id, False)
    check(part, FIFTHS, after)


@pytest.mark.parametrize(
    ("before", "text", "multiplier", "allowed", "breakers", "after"),
    [
        (QUARTERS, [0, 1], 1, 2, {}, QUARTERS),
        (QUARTERS, [0, 1, 2, 0, 1], 1, 2, {}, [0.296923, 0.296923, 0.109232, 0.296923]),
        (FIFTHS, [0, 1, 3, 4, 0, 1], 1, 2, {3: [()]}, FIFTHS),
        (FIFTHS, [0, 1, 2, 0, 1], 2, 2, {}, [0.241818, 0.241818, 0.032727, 0.241818, 0.241818]),
        (FIFTHS, [0, 1, 2, 3, 4, 0, 1], 1, 4, {}, FIFTHS),
    ],
)
def test_dry(
    before: list[float],
    text: list[int],
    multiplier: float,
    allowed: int,
    breakers: Breakers,
    after: list[float],
) -> None:
    part = dry(multiplier, 1.1, allowed, len(text), breakers)
    assert part is not None
    for id in text:
        part.accept(id, False)
    check(part, before, after)


def test_top_n_sigma() -> None:
    check(top_n_sigma(1), FOUR, [0, 0, 0.428571, 0.571429])
    check(top_n_sigma(0), FOUR, FOUR)
    check(top_n_sigma(3), FOUR, FOUR)


N = 10_000


def expected_left(part: str, n: int, k: int, p: float, least: float) -> int:
    """Of the tokens N - n to N - 1, of probabilities as their ids, how many a part leaves."""
    if part == "k":
        return min(n, k)
    if part == "m":
        return min(n, max(math.ceil((1 - np.float32(least)) * N), 1), N - 1)  # 0 is impossible
    first = N - n
    enough = math.ceil(np.float32(p) * np.float32(N * (N - 1) // 2 - first * (first - 1) // 2))
    kept = total = 0
    while kept == 0 or total < enough:  # one in any case
        kept += 1
        total += N - kept
    return N if kept == N - 1 else kept  # the last is impossible: it adds nothing


@pytest.mark.parametrize(
    ("parts", "k", "p", "least"),
    [
        ("k", N, 1, 1),
        ("k", 1, 1, 1),
        ("p", N, 1, 1),
        ("p", N, 0, 1),
        ("m", N, 1, 1),
        ("m", N, 1, 1e-12),
        ("k", 100, 1, 1),
        ("p", N, 0.0003, 1),
        ("p", N, 0.8, 1),
        ("m", N, 1, 9997.9 / 9999),
        ("m", N, 1, 0.1),
        ("kp", 100, 0.8, 0.1),
        ("km", 100, 0.8, 0.1),
        ("pk", 100, 0.8, 0.1),
        ("pm", 100, 0.8, 0.1),
        ("mk", 100, 0.8, 0.1),
        ("mp", 100, 0.8, 9997.9 / 9999),
        ("mp", 100, 0.8, 0.1),
        ("kpm", 100, 0.8, 0.1),
        ("kmp", 100, 0.8, 0.1),
        ("pkm", 100, 0.8, 0.1),
        ("pmk", 100, 0.8, 0.1),
        ("mkp", 100, 0.8, 0.1),
        ("mpk", 100, 0.8, 0.1),
    ],
)
def test_one_after_the_other(parts: str, k: int, p: float, least: float) -> None:
    with np.errstate(divide="ignore"):
        c, n = Candidates(np.arange(N), np.log(np.arange(N, dtype=np.float32))), N
    for part in parts:
        keep = {"k": top_k(k), "p": top_p(p, 1), "m": min_p(least, 1)}[part]
        c = keep(c) if keep else c
        n = expected_left(part, n, k, p, least) if keep else n
        assert sorted(c.ids.tolist()) == list(range(N - n, N))
        assert not c.sorted or c.ids.tolist() == list(range(N - 1, N - n - 1, -1))
