"""Completions have the texts of llama-cpp-python, for the demo in F32."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from dev.record.record_completions import FILE, record
from llama_py.compat import llama_cpp
from llama_py.compat.llama_cpp import Llama
from llama_py.loading.model import DEMO
from tests.support.commands import run

Completion = dict[str, Any]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo in F32: products of quantized weights are rounded otherwise."""
    path = tmp_path_factory.mktemp("f32") / "demo.gguf"
    run("llama-py-gguf", "quantize", "--allow-requantize", DEMO, path, "F32")
    return path


@pytest.fixture(scope="module")
def found(path: Path) -> list[Completion]:
    return record(llama_cpp, str(path))


def by_options(all: list[Completion]) -> Iterator[tuple[str, list[Completion]]]:
    for key, group in groupby(all, lambda one: json.dumps(one["options"])):
        yield key, list(group)


RECORDED = dict(by_options(json.loads(FILE.read_text())))


@pytest.mark.parametrize("options", RECORDED)
def test_texts_are_those_of_llama_cpp_python(options: str, found: list[Completion]) -> None:
    """On another CPU the rounding of a logit may change one text, not several."""
    wrong = [
        (ours["text"], theirs["text"])
        for ours, theirs in zip(dict(by_options(found))[options], RECORDED[options], strict=True)
        if ours["text"] != theirs["text"]
    ]
    assert len(wrong) < 2, wrong


def test_one_sampler_for_tokens_of_the_caller(path: Path) -> None:
    """Tokens that a caller sends do not start the random numbers again."""
    llm = Llama(str(path), n_ctx=64, verbose=False)
    ids = llm.tokenize(b"ROMEO:")
    chosen = []
    for sends in (False, True):
        llm.set_seed(3)
        tokens = llm.generate(ids, temp=100.0, top_k=0, top_p=1.0, min_p=0.0)
        first = [next(tokens) for _ in range(3)]
        chosen.append(tokens.send([5]) if sends else next(tokens))
        tokens.close()
    # At this temperature the random number determines the token, and logits hardly matter.
    assert abs(chosen[0] - chosen[1]) < 20 < abs(chosen[0] - first[0])
    llm.close()
