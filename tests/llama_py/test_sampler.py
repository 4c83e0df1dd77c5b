"""The sampler: each filter on numbers that can be worked out by hand, then the chain."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ggml_py.errors import ModelError
from llama_py.sampler import Candidates, Sampler, SamplingParams
from llama_py.sampler.candidates import Filter, top_indices
from llama_py.sampler.filters import min_p, temperature, top_k, top_n_sigma, top_p, typical_p, xtc
from llama_py.sampler.mt19937 import Mt19937

# Probabilities of ids 0..3; as logits, and in an order that is not sorted.
PROBABILITIES = [0.1, 0.5, 0.05, 0.35]


def candidates(probabilities: list[float] = PROBABILITIES) -> Candidates:
    return Candidates(np.arange(len(probabilities)), logits(probabilities))


def logits(probabilities: list[float]) -> NDArray[np.float32]:
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities, np.float32))


def kept(keep: Filter | None, c: Candidates | None = None) -> list[int]:
    assert keep is not None
    return sorted(keep(c or candidates()).ids.tolist())


def possible(keep: Filter | None, c: Candidates) -> list[int]:
    assert keep is not None
    left = keep(c)
    assert left.ids.tolist() == c.ids.tolist()
    return left.ids[left.logits > -np.inf].tolist()


class Fixed(Mt19937):
    """Always the same random number."""

    def __init__(self, number: float) -> None:
        super().__init__(0)
        self.number = number

    def single(self) -> float:
        return self.number


def chain_of(n_vocab: int = 4, **params: Any) -> Sampler:
    return Sampler(SamplingParams(**{"seed": 1, **params}), n_vocab)


def draws(sampler: Sampler, values: NDArray[np.float32], n: int) -> list[int]:
    return [sampler.sample(values) for _ in range(n)]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=1500), st.integers(1, 50))
def test_largest_is_a_stable_sort(values: list[int], k: int) -> None:
    array = np.array(values, np.float32)
    np.testing.assert_array_equal(top_indices(array, k), np.argsort(-array, kind="stable")[:k])


def test_largest_of_a_large_vocabulary() -> None:
    array = np.random.default_rng(0).normal(size=248_320).astype(np.float32)
    array[1000:] = np.where(array[1000:] > 2, -np.inf, array[1000:])
    for k in (1, 40, 969, 971, 248_319):
        np.testing.assert_array_equal(top_indices(array, k), np.argsort(-array, kind="stable")[:k])


def test_top_k() -> None:
    assert kept(top_k(2)) == [1, 3]
    assert kept(top_k(9)) == [0, 1, 2, 3]
    assert top_k(0) is None


def test_top_p() -> None:
    assert kept(top_p(0.4)) == [1]
    assert kept(top_p(0.6)) == [1, 3]
    assert kept(top_p(0.86)) == [0, 1, 3]
    assert kept(top_p(0.0)) == [1]
    assert top_p(1.0) is None


def test_top_p_looks_further_when_the_likeliest_are_not_enough() -> None:
    c = candidates([1 / 5000] * 5000)
    assert kept(top_p(0.4999), c) == list(range(2500))


def test_min_p() -> None:
    assert kept(min_p(0.2)) == [0, 1, 3]
    assert kept(min_p(0.21)) == [1, 3]
    assert kept(min_p(1.0)) == [1]
    assert min_p(0.0) is None


def test_typical_p() -> None:
    """Surprises are 2.30, 0.69, 3.00, 1.05 and the entropy 1.09: nearest are 3, 1, 0, 2."""
    assert kept(typical_p(0.3)) == [3]
    assert kept(typical_p(0.4)) == [1, 3]
    assert kept(typical_p(0.9)) == [0, 1, 3]
    assert kept(typical_p(0.3), candidates([0.0, 1.0])) == [1]
    assert typical_p(1.0) is None


def test_top_n_sigma() -> None:
    values = np.array([0, 2, 4, 10, -np.inf], np.float32)  # mean 4, deviation 3.74
    c = Candidates(np.arange(5), values)
    assert possible(top_n_sigma(1.0), c) == [3]
    assert possible(top_n_sigma(2.0), c) == [2, 3]
    assert top_n_sigma(-1.0) is None


def test_xtc() -> None:
    assert kept(xtc(0.5, 0.3, 0, Fixed(0.4))) == [0, 2, 3]
    assert kept(xtc(0.5, 0.09, 0, Fixed(0.4))) == [0, 2]
    assert kept(xtc(0.5, 0.09, 3, Fixed(0.4))) == [0, 1, 2, 3]
    assert kept(xtc(0.5, 0.3, 0, Fixed(0.6))) == [0, 1, 2, 3]
    assert kept(xtc(0.5, 0.5, 0, Fixed(0.4)), candidates([0.4, 0.3, 0.3])) == [0, 1, 2]
    assert xtc(0.0, 0.1, 0, Fixed(0)) is None
    assert xtc(1.0, 0.51, 0, Fixed(0)) is None


@pytest.mark.parametrize("temp", [1e-37, 1e-40, 1e-45, 1e-300])
def test_the_lowest_temperatures_take_the_best(temp: float) -> None:
    values = np.array([-30, 25, 24.9, 0, -np.inf], np.float32)
    sampler = chain_of(5, temp=temp, top_k=0, top_p=1.0, min_p=0.0)
    assert {sampler.sample(values) for _ in range(20)} == {1}


def test_the_lowest_temperature_of_what_is_not_divided() -> None:
    """The best of these is 0, and no 32-bit number is the temperature."""
    sampler = chain_of(2, temp=1e-300, top_k=0, top_p=1.0, min_p=1e-300)
    assert {sampler.sample(np.array([-1.0, 0.0], np.float32)) for _ in range(20)} == {1}


def test_temperature() -> None:
    keep = temperature(0.5)
    assert keep is not None
    np.testing.assert_allclose(keep(candidates()).logits, 2 * candidates().logits)


def test_the_defaults_are_those_of_llama_cpp() -> None:
    p = SamplingParams()
    assert (p.temp, p.top_k, p.top_p, p.min_p, p.typical_p) == (0.8, 40, 0.95, 0.05, 1.0)
    assert (p.top_n_sigma, p.xtc_probability, p.xtc_threshold) == (-1.0, 0.0, 0.1)
    assert (p.repeat_last_n, p.repeat_penalty) == (64, 1.0)
    assert (p.frequency_penalty, p.presence_penalty, p.logit_bias) == (0.0, 0.0, {})


def test_the_chain_in_llama_cpps_order() -> None:
    """top_k leaves 0.5 0.35 0.1; of these top_p 0.85 leaves two; before top_k it would be three."""
    assert kept_by(chain_of(top_k=3, top_p=0.89, min_p=0.0)) == [1, 3]
    assert kept_by(chain_of(top_k=0, top_p=0.89, min_p=0.0)) == [0, 1, 3]
    assert kept_by(chain_of(top_k=0, top_p=1.0, min_p=0.6)) == [1, 3]


def kept_by(sampler: Sampler) -> list[int]:
    return sorted(sampler.candidates(logits(PROBABILITIES)).ids.tolist())


def test_draws_follow_the_probabilities() -> None:
    sampler = chain_of(temp=1.0, top_k=0, top_p=1.0, min_p=0.0)
    counts = np.bincount(draws(sampler, logits(PROBABILITIES), 4000), minlength=4)
    np.testing.assert_allclose(counts / 4000, PROBABILITIES, atol=0.03)


def test_a_forbidden_token_is_never_drawn() -> None:
    sampler = chain_of(temp=1.0, top_k=0, top_p=1.0, min_p=0.0)
    assert set(draws(sampler, logits([0.0, 0.5, 0.0, 0.5]), 200)) == {1, 3}


@pytest.mark.parametrize("params", [{}, {"typical_p": 0.99}, {"top_k": 0, "xtc_threshold": 0.4}])
@pytest.mark.parametrize("temp", [0.0, -1.0])
def test_greedy_takes_the_first_of_the_best(temp: float, params: dict[str, Any]) -> None:
    values = np.array([1, 5, 5, 0, 5], np.float32)
    assert chain_of(5, temp=temp, **params).sample(values) == 1


def test_greedy_without_the_top_choices() -> None:
    sampler = chain_of(temp=0.0, xtc_probability=1.0, xtc_threshold=0.3)
    assert sampler.sample(logits(PROBABILITIES)) == 3


def test_the_same_seed_draws_the_same() -> None:
    values = np.zeros(1000, np.float32)
    first, second, other = (chain_of(1000, seed=seed) for seed in (5, 5, 6))
    expected = draws(first, values, 20)
    assert draws(second, values, 20) == expected
    assert draws(other, values, 20) != expected
    first.reset()
    assert draws(first, values, 20) == expected


def test_a_random_seed_is_told() -> None:
    values = np.zeros(1000, np.float32)
    first, second = chain_of(1000, seed=-1), chain_of(1000, seed=-1)
    assert first.seed != second.seed
    assert draws(chain_of(1000, seed=first.seed), values, 9) == draws(first, values, 9)


def test_clones_go_on_from_the_same_state() -> None:
    values = np.ones(1000, np.float32)
    sampler = chain_of(1000, repeat_penalty=2.0, seed=-1)
    sampler.accept(3)
    sampler.sample(values)
    clone = sampler.clone()
    assert draws(clone, values, 9) == draws(sampler, values, 9)
    clone.reset()
    sampler.accept(4)
    assert {3, 4} <= set(clone.candidates(values).ids.tolist())
    assert not {3, 4} & set(sampler.candidates(values).ids.tolist())
    assert draws(clone, values, 9) == draws(chain_of(1000, seed=sampler.seed), values, 9)


def test_penalties() -> None:
    sampler = chain_of(
        temp=1.0,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        repeat_last_n=3,
        repeat_penalty=2.0,
        frequency_penalty=0.5,
        presence_penalty=0.25,
    )
    values = np.array([4, -4, 1, 0], np.float32)
    for id in (3, 0, 1, 0):  # 3 is forgotten
        sampler.accept(id)
    left = sampler.candidates(values)
    np.testing.assert_allclose(left.logits, [2 - 1.0 - 0.25, -8 - 0.5 - 0.25, 1, 0])
    np.testing.assert_array_equal(values, [4, -4, 1, 0])
    sampler.reset()
    np.testing.assert_array_equal(sampler.candidates(values).logits, values)


def test_logit_bias() -> None:
    values = np.array([1, 2, 3, 0], np.float32)
    sampler = chain_of(temp=0.0, logit_bias={2: -math.inf, 0: 1.5})
    assert sampler.sample(values) == 0
    np.testing.assert_array_equal(values, [1, 2, 3, 0])


def test_bad_requests() -> None:
    with pytest.raises(ModelError, match=r"token must be in the vocabulary, 0..3, got 4"):
        chain_of(4, logit_bias={4: 1.0})
    with pytest.raises(ModelError, match=r"shape \(4,\), got \(5,\)"):
        chain_of(4).sample(np.zeros(5, np.float32))
    with pytest.raises(ModelError, match=r"token must be in the vocabulary, .*got -1"):
        chain_of(4).accept(-1)
    for values in ([0, math.nan, 0, 0], [math.inf, 0, 0, 0], [-math.inf] * 4):
        with pytest.raises(ModelError, match="no token can be sampled"):
            chain_of(4).sample(np.array(values, np.float32))


@pytest.mark.parametrize("n", [300, 20000])
@pytest.mark.parametrize("n_possible", [0, 1, 39, 41, 150])
def test_the_largest_where_few_are_possible(n: int, n_possible: int) -> None:
    """A grammar leaves few: the others follow in their order."""
    rng = np.random.default_rng(n_possible)
    for places in (rng.choice(n, n_possible, False), np.arange(n - n_possible, n)):
        values = np.full(n, -np.inf, np.float32)
        values[places] = rng.integers(-3, 3, n_possible)
        for k in (1, 40, 299):
            wanted = np.argsort(-values, kind="stable")[:k]
            np.testing.assert_array_equal(top_indices(values, k), wanted)
