"""What a sampler remembers: changed by what is accepted, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggml_py.errors import ModelError
from llama_py.params.sampling import SAMPLERS
from llama_py.sampler import Candidates, Sampler, SamplingParams
from llama_py.sampler.breakers import find_breakers
from llama_py.sampler.draw import place
from llama_py.sampler.dry import common_prefixes, repetitions
from llama_py.sampler.infill import infill
from llama_py.sampler.mt19937 import Mt19937
from llama_py.sampler.stages import STAGES
from llama_py.tokenizer import Tokenizer, load_tokenizer
from tests.support.commands import DEMO

N = 300
LOGITS = np.random.default_rng(0).normal(0, 2, N).astype(np.float32)
BEST = np.argsort(-LOGITS)
TEXT = [int(BEST[i]) for i in (0, 1, 2, 0, 1)]
REMEMBERING: dict[str, dict[str, Any]] = {
    "penalties": {"repeat_penalty": 1.5, "frequency_penalty": 0.3},
    "dry": {"dry_multiplier": 2.0, "dry_allowed_length": 1, "dry_sequence_breakers": ()},
    "mirostat": {"mirostat": 1, "mirostat_lr": 0.5},
    "mirostat 2": {"mirostat": 2, "mirostat_lr": 0.5},
    "adaptive_p": {"sampler_seq": "ma", "adaptive_target": 0.2, "adaptive_decay": 0.5},
    "xtc": {"sampler_seq": "xt", "xtc_probability": 0.5, "xtc_threshold": 0.01},
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(DEMO)


def made(name: str) -> Sampler:
    sampler = Sampler(SamplingParams(seed=3, **REMEMBERING[name]), N)
    for id in TEXT:
        sampler.accept(id)
    return sampler


def answer(sampler: Sampler, n: int) -> list[int]:
    found = []
    for _ in range(n):
        found.append(sampler.sample(LOGITS))
        sampler.accept(found[-1])
    return found


def left(sampler: Sampler) -> tuple[list[int], NDArray[np.float32]]:
    c = sampler.clone().candidates(LOGITS)
    return c.ids.tolist(), c.logits


@pytest.mark.parametrize("name", [name for name in REMEMBERING if name != "xtc"])
def test_what_is_not_accepted_leaves_no_trace(name: str) -> None:
    sampler = made(name)
    ids, logits = left(sampler)
    for _ in range(5):
        drawn = sampler.sample(LOGITS)
    now, same = left(sampler)
    assert now == ids
    np.testing.assert_array_equal(same, logits)
    sampler.accept(drawn)
    now, other = left(sampler)
    assert now != ids or not np.array_equal(other, logits)


@pytest.mark.parametrize("name", REMEMBERING)
def test_clones_and_resets(name: str) -> None:
    sampler = made(name)
    before = answer(sampler, 5)
    clone = sampler.clone()
    assert answer(clone, 10) == answer(sampler, 10)
    clone.reset()
    for id in TEXT:
        clone.accept(id)
    assert answer(clone, 5) == before


@pytest.mark.parametrize("name", ["mirostat", "mirostat 2", "adaptive_p"])
def test_another_token_than_the_drawn_one_tells_nothing(name: str) -> None:
    sampler = made(name)
    ids, logits = left(sampler)
    sampler.accept((sampler.sample(LOGITS) + 1) % N)
    assert left(sampler)[0] == ids
    np.testing.assert_array_equal(left(sampler)[1], logits)


def test_mirostat_comes_to_the_surprise_that_is_wanted() -> None:
    """1,000 tokens of a distribution whose own surprise is 5.6 bits."""
    p = np.exp(LOGITS.astype(np.float64))
    p /= p.sum()
    for version in (1, 2):
        params = SamplingParams(mirostat=version, mirostat_ent=3.0, temp=1.0, seed=1)
        surprise = -np.log2(p[answer(Sampler(params, N), 1000)])
        assert abs(surprise.mean() - 3) < 1


def chi_square(counts: NDArray[np.int64], p: NDArray[np.float64]) -> float:
    expected = p * counts.sum()
    return float((((counts - expected) ** 2)[p > 0] / expected[p > 0]).sum())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_draws_have_the_distribution(seed: int) -> None:
    """Ten candidates: chi square of 9 degrees exceeds 27.9 once in a thousand times."""
    sampler = Sampler(SamplingParams(seed=seed, top_k=10, top_p=1.0, min_p=0.0), N)
    c = sampler.candidates(LOGITS)
    counts = np.bincount([sampler.sample(LOGITS) for _ in range(3000)], minlength=N)[c.ids]
    assert counts.sum() == 3000
    assert chi_square(counts, c.probabilities().astype(np.float64)) < 27.9


def test_random_numbers_are_those_of_cpp() -> None:
    """The 10,000th of std::mt19937 with its own seed is in the standard: 4123659995."""
    random = Mt19937(5489)
    for _ in range(9999):
        random._next()
    assert random._next() == 4123659995
    assert Mt19937(1).double() == (1791095845 + 4282876139 * 2**32) / 2**64
    assert Mt19937(1).single() == np.float32(1791095845) / np.float32(2**32)


def test_nothing_impossible_is_drawn() -> None:
    weights = np.array([0, 1, 0, 1, 0], np.float32)
    assert [place(weights, x) for x in (0, 0.49, 0.51, 1 - 2**-53)] == [1, 1, 3, 3]


class Even:
    """Only even tokens, each larger than the one before."""

    holds = True

    def __init__(self, last: int = -1) -> None:
        self.last, self.asked = last, 0

    def allows(self, id: int) -> bool:
        return id % 2 == 0 and id > self.last

    def n_allowed(self, ids: Sequence[int]) -> int:
        return next((n for n, id in enumerate(ids) if not self.allows(id)), len(ids))

    @property
    def complete(self) -> bool:
        return True

    def apply(self, c: Candidates) -> Candidates:
        self.asked += 1
        allowed = np.array([self.allows(int(id)) for id in c.ids])
        return Candidates(c.ids, np.where(allowed, c.logits, np.float32(-np.inf)))

    def accept(self, id: int) -> None:
        self.last = id

    def reset(self) -> None:
        self.last = -1

    def copy(self) -> Even:
        return Even(self.last)


@pytest.mark.parametrize("temp", [0.0, 5.0])
def test_a_constraint_holds(temp: float) -> None:
    even = Even()
    params = SamplingParams(temp=temp, top_k=3, seed=2)
    sampler = Sampler(params, N, constraint=even)
    sampler.accept(N - 1)  # of the prompt
    clone = sampler.clone()
    found = answer(sampler, 4)
    assert found == sorted({*found}) and not any(id % 2 for id in found)
    assert 0 < even.asked <= 4
    assert answer(clone, 4) == found
    sampler.reset()
    assert even.last == -1
    even.last = N
    with pytest.raises(ModelError, match=r"no token can be sampled.* constraint excludes"):
        sampler.sample(LOGITS)


def test_what_a_constraint_allows_is_not_asked_for_twice() -> None:
    """Random numbers are those without it."""
    even, params = Even(), SamplingParams(temp=1.0, seed=4, top_k=1)
    best = np.zeros(N, np.float32)
    best[10] = 5
    assert Sampler(params, N, constraint=even).sample(best) == 10
    assert even.asked == 0


def test_each_sampler_has_a_name_and_a_character() -> None:
    assert set(STAGES) == set(SAMPLERS)
    assert len(set(SAMPLERS.values())) == len(SAMPLERS)
    assert SamplingParams().chain == SamplingParams(sampler_seq="edskypmxt").chain
    names = "Top-K;topp;min_p;TEMP;nucleus;typ;xtc;;infill"
    expected = ("top_k", "top_p", "min_p", "temperature", "top_p", "typ_p", "xtc", "infill")
    assert SamplingParams(samplers=names).chain == expected
    assert SamplingParams(samplers=()).chain == ()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"samplers": ("infill",)}, "infill needs the tokenizer"),
        ({"dry_multiplier": 1.0}, "dry_sequence_breakers needs the tokenizer"),
        ({"ignore_eos": True}, "ignore_eos needs the tokenizer"),
        ({"logit_bias": {"a": 1.0}}, "logit_bias of 'a' needs the tokenizer"),
    ],
)
def test_texts_need_a_vocabulary(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Sampler(SamplingParams(**params), N)


def test_biases_by_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.tokenize("the king", False, False)
    bias: dict[int | str, float] = {"the king": 2.0, ids[0]: 1.0}
    sampler = Sampler(SamplingParams(logit_bias=bias, samplers=()), tokenizer.n_vocab, tokenizer)
    logits = sampler.candidates(np.zeros(tokenizer.n_vocab, np.float32)).logits
    expected = np.zeros(tokenizer.n_vocab)
    np.add.at(expected, ids, 2)
    expected[ids[0]] += 1
    np.testing.assert_array_equal(logits, expected)


def test_tokens_that_the_file_suppresses() -> None:
    import llama_py

    model = llama_py.load(str(DEMO), "null")
    meta = {**model.tokenizer._meta, "tokenizer.ggml.suppress_tokens": [5, -1, 9999, 6]}
    tokenizer = Tokenizer.from_metadata(meta)
    assert tokenizer.suppress_tokens == [5, 6]
    sampler = Sampler(SamplingParams(samplers=()), tokenizer.n_vocab, tokenizer)
    logits = sampler.candidates(np.zeros(tokenizer.n_vocab, np.float32)).logits
    assert np.flatnonzero(logits).tolist() == [5, 6]
    assert model.tokenizer.suppress_tokens == []


def test_breakers_are_found_in_and_across_tokens(tokenizer: Tokenizer) -> None:
    found = find_breakers(("the", ""), tokenizer)
    for id, piece in enumerate(tokenizer.pieces):
        whole = () in found.get(id, ())
        assert whole == (b"the" in piece)
        if not whole and piece.endswith((b"th", b"t")):
            rest = "e" if piece.endswith(b"th") else "he"
            assert found[id] == [tuple(tokenizer.tokenize(rest, False, False))]
    assert find_breakers((), tokenizer) == {}
    long = "x" * 39 + "é"  # cut in the middle of a character
    tails = [tail for tails in find_breakers((long,), tokenizer).values() for tail in tails]
    assert tails and all(0 < len(tail) <= 20 for tail in tails)


def test_repetitions_do_not_reach_back_over_breakers() -> None:
    text = [1, 2, 3, 9, 8, 1, 2, 3]
    assert repetitions(text, 2, {}) == {9: 3}
    assert repetitions(text, 2, {1: [()]}) == {9: 2}
    assert repetitions(text, 2, {1: [(2,)]}) == {}
    assert repetitions(text, 1, {1: [(2,), (4,)]}) == {9: 1}
    assert repetitions(text, 2, {9: [()]}) == {}
    assert repetitions(text, 2, {9: [(7,)]}) == {9: 3}


@pytest.mark.parametrize("seed", range(20))
def test_common_prefixes(seed: int) -> None:
    a = np.random.default_rng(seed).integers(0, 2, 40).tolist()
    for k, n in enumerate(common_prefixes(a)):
        if k:
            assert a[k : k + n] == a[:n] and a[k + n : k + n + 1] != a[n : n + 1]


def infilled(tokenizer: Tokenizer, weights: dict[str | int, float]) -> list[int]:
    ids = [k if isinstance(k, int) else tokenizer.pieces.index(k.encode()) for k in weights]
    logits = np.log(np.array([*weights.values()], np.float32))
    return infill(tokenizer)(Candidates(np.array(ids), logits)).ids.tolist()


def test_infill(tokenizer: Tokenizer) -> None:
    end, piece = tokenizer.eot, tokenizer.pieces.index
    assert end is not None
    assert infilled(tokenizer, {" the": 0.5, " he": 0.2, end: 0.3}) == [end]
    assert infilled(tokenizer, {" h": 0.3, " he": 0.4, "K": 0.3}) == [piece(b" he")]
    assert infilled(tokenizer, {" h": 0.5, " he": 0.2, "K": 0.3}) == [piece(b" h")]
    assert infilled(tokenizer, {chr(c): 0.04 for c in range(65, 90)}) == [end]
    assert infilled(tokenizer, {" the": 0.86, end: 0.14}) == [piece(b" the"), end]  # 3 * 2 * 0.14
    two = [piece(b" the"), piece(b"K")]
    assert infilled(tokenizer, {" the": 0.5, "K": 0.28, "Q": 0.11, "Z": 0.11}) == two
    assert infilled(tokenizer, {" the": 0.6, "K": 0.25, "Q": 0.15}) == two[:1]  # below 1/3
    none = Tokenizer.from_metadata(
        {k: v for k, v in tokenizer._meta.items() if not k.endswith("eos_token_id")}
    )
    none.special_ids.clear()
    with pytest.raises(ModelError, match="no EOT or EOS"):
        infilled(none, {chr(c): 0.04 for c in range(65, 90)})


@pytest.mark.parametrize(
    "params",
    [
        {"repeat_penalty": 1e-38},
        {"repeat_penalty": 1e38},
        {"presence_penalty": -1e38},
        {"dry_multiplier": -1e38, "dry_sequence_breakers": (), "dry_allowed_length": 1},
        {"temp": 1e38},
        {"top_n_sigma": 1e38},
        {"mirostat": 1, "mirostat_ent": 1e6},
        {"mirostat": 2, "mirostat_ent": 1e6, "mirostat_lr": 1e6},
        {"dynatemp_range": 1e38, "dynatemp_exp": 1e38},
        {"adaptive_target": -1e38, "sampler_seq": "a"},
        {"frequency_penalty": 1e38, "temp": 0},
    ],
)
def test_extreme_settings_draw_something(params: dict[str, Any]) -> None:
    sampler = Sampler(SamplingParams(seed=1, **params), N)
    for id in (*range(N), 1, 2, 3, 1, 2):
        sampler.accept(id)
    assert all(0 <= id < N for id in answer(sampler, 3))


@pytest.mark.parametrize("cut", [lambda n: {"top_k": n}, lambda n: {"samplers": (), "min_keep": n}])
def test_logits_are_not_written(cut: Callable[[int], dict[str, Any]]) -> None:
    logits = LOGITS.copy()
    logits.flags.writeable = False
    answer(Sampler(SamplingParams(seed=1, repeat_penalty=1.2, **cut(5)), N), 3)
