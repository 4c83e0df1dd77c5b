"""Tokenizer and sampler against the real llama.cpp, through llama-cpp-python."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_py.gguf.file import GGUFFile
from llama_py.sampler import Candidates, filters
from llama_py.sampler.mt19937 import Mt19937
from llama_py.sampler.penalties import penalties
from llama_py.tokenizer import Tokenizer, TokenType
from llama_py.tokenizer.pre import PRE_TOKENIZERS
from tests.support import vocab_data
from tests.support.commands import DEMO
from tests.support.gguf_writer import write
from tests.support.llama_cpp_vocab import LlamaCpp
from tests.support.text_vocab import bpe_meta, characters, vocab_gguf

pytestmark = pytest.mark.parity


# One name for each way of cutting.
WAYS = {pre.cuts: name for name, pre in PRE_TOKENIZERS.items() if pre.as_bytes}.values()

ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz  ",
    "".join(map(chr, range(0x20, 0x7F))),
    "'’sStTrRdDmMlLvVeEſK ",
    "0123456789²½Ⅷ٣九",
    " \t\n\r\x0b\x0c\x85\xa0\u2003\u3000\u200b",
    "".join(map(chr, range(0xA1, 0x250))),
    "你好世界豈あゟアヿ가힣ㄱक़नाя\u0301\u200d🙂👩",
)


@pytest.fixture(scope="module")
def llama_cpp() -> Any:
    module = pytest.importorskip("llama_cpp")
    module.llama_backend_init()
    return module


def random_texts(n: int) -> Iterator[str]:
    rng = random.Random(1)
    for _ in range(n):
        few = rng.sample(ALPHABETS, 3)
        yield "".join(rng.choice(rng.choice(few)) for _ in range(rng.randint(0, 50)))
        points = [chr(rng.randrange(1, 0x30000)) for _ in range(60)]
        yield "".join(c for c in points if not "\ud800" <= c < "\ue000")


def assert_same_ids(lib: Any, path: Path) -> None:
    ours, theirs = Tokenizer.from_metadata(GGUFFile.open(path).metadata), LlamaCpp(lib, path)
    control = [i for i, type_ in enumerate(ours.types) if type_ == TokenType.CONTROL][:50]
    rng = random.Random(2)
    for text in random_texts(100):
        text += rng.choice(["", *(ours.vocab.texts[i] for i in control)]) + " x"
        for how in ((False, False), (True, True)):
            assert ours.tokenize(text, *how) == theirs.tokenize(text, *how), repr(text)


@pytest.fixture(scope="module", params=["demo", *vocab_data.NAMES])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a whole vocabulary."""
    if request.param == "demo":
        return DEMO
    content = vocab_gguf(vocab_data.vocabulary(request.param).metadata)
    return write(tmp_path_factory.mktemp("vocab"), content)


def test_ids(llama_cpp: Any, path: Path) -> None:
    assert_same_ids(llama_cpp, path)


@pytest.mark.parametrize("pre", WAYS)
def test_cuts(llama_cpp: Any, pre: str, tmp_path: Path) -> None:
    """With a merge for any two bytes, a cut is hard to miss."""
    pairs = [f"{a} {b}" for a in characters() for b in characters()]
    random.Random(0).shuffle(pairs)
    end = 256 + len(pairs)
    special = {"<s>": TokenType.CONTROL}
    meta = bpe_meta(*pairs, special=special, pre=pre, bos_token_id=end, eos_token_id=end)
    assert_same_ids(llama_cpp, write(tmp_path, vocab_gguf(meta)))


FILTERS: dict[str, Any] = {
    "top_k": lambda lib: ([filters.top_k(17)], [lib.llama_sampler_init_top_k(17)]),
    "top_p": lambda lib: ([filters.top_p(0.7)], [lib.llama_sampler_init_top_p(0.7, 0)]),
    "min_p": lambda lib: ([filters.min_p(0.1)], [lib.llama_sampler_init_min_p(0.1, 0)]),
    "typical": lambda lib: ([filters.typical_p(0.6)], [lib.llama_sampler_init_typical(0.6, 0)]),
    "top_n_sigma": lambda lib: (
        [filters.top_n_sigma(1.5)],
        [lib.llama_sampler_init_top_n_sigma(1.5)],
    ),
    "xtc": lambda lib: (
        [filters.xtc(1.0, 0.02, 0, Mt19937(1))],
        [lib.llama_sampler_init_xtc(1.0, 0.02, 0, 1)],
    ),
    "temperature": lambda lib: ([filters.temperature(0.7)], [lib.llama_sampler_init_temp(0.7)]),
    "default chain": lambda lib: (
        [filters.top_k(40), filters.top_p(0.95), filters.min_p(0.05), filters.temperature(0.8)],
        [
            lib.llama_sampler_init_top_k(40),
            lib.llama_sampler_init_top_p(0.95, 0),
            lib.llama_sampler_init_min_p(0.05, 0),
            lib.llama_sampler_init_temp(0.8),
        ],
    ),
}


def apply_llama_cpp(lib: Any, logits: np.ndarray, samplers: list[Any]) -> dict[int, float]:
    data = [lib.llama_token_data(i, float(x), 0.0) for i, x in enumerate(logits)]
    items = (lib.llama_token_data * len(data))(*data)
    candidates = lib.llama_token_data_array(items, len(data), -1, False)
    for sampler in samplers:
        lib.llama_sampler_apply(sampler, ctypes.byref(candidates))
    left = (candidates.data[i] for i in range(candidates.size))
    return {item.id: item.logit for item in left if item.logit > -np.inf}


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("n", [5, 1000, 5000])
def test_filters(llama_cpp: Any, name: str, n: int) -> None:
    ours, theirs = FILTERS[name](llama_cpp)
    for seed in range(5):
        logits = np.random.default_rng(seed).normal(0, 3, n).astype(np.float32)
        c = Candidates(np.arange(n), logits)
        for keep in ours:
            c = keep(c)
        expected = apply_llama_cpp(llama_cpp, logits, theirs)
        c = c.take(c.logits > -np.inf)
        assert set(c.ids.tolist()) == set(expected)
        np.testing.assert_allclose(c.logits, [expected[i] for i in c.ids.tolist()], rtol=1e-6)


def test_penalties(llama_cpp: Any) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, 100).astype(np.float32)
    ours, theirs = (
        penalties(64, 1.3, 0.2, 0.4),
        llama_cpp.llama_sampler_init_penalties(100, 64, 1.3, 0.2, 0.4),
    )
    assert ours is not None
    for id in rng.integers(0, 40, 90).tolist():
        ours.accept(id, False)
        llama_cpp.llama_sampler_accept(theirs, id)
    expected = apply_llama_cpp(llama_cpp, logits, [theirs])
    left = ours(Candidates(np.arange(100), logits)).logits
    np.testing.assert_allclose(left, list(expected.values()), rtol=1e-6)
