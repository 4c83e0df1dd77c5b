"""The generation loop: what it yields, why it ends, and what the memory holds afterwards."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError, ModelError, TokenizerError
from llama_py.context import Context
from llama_py.text.generate import Greedy, Piece
from tests.support.live_models import made, model_of

PROMPT = "First Citizen:\n"


@cache
def demo(device: str) -> llama_py.Model:
    return llama_py.load(str(resources.files("llama_py.data") / "demo.gguf"), device)


def answer(ctx: Context, prompt: Any = PROMPT, **options: Any) -> list[Piece]:
    return list(llama_py.stream(ctx, prompt, **options))


def greedy(n: int) -> list[int]:
    """The n most likely tokens after PROMPT, by decode alone."""
    ctx = demo("ref").context(n_ctx=256)
    logits = ctx.decode(demo("ref").tokenizer.tokenize(PROMPT))
    ids = [int(np.argmax(logits))]
    while len(ids) < n:
        ids.append(int(np.argmax(ctx.decode(ids[-1:]))))
    return ids


class Fixed:
    """Says what it is told, whatever the logits."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = list(ids)
        self.accepted: list[int] = []

    def sample(self, logits: Any) -> int:
        return self.ids.pop(0)

    def accept(self, id: int) -> None:
        self.accepted.append(id)


def test_a_stream_is_the_greedy_continuation() -> None:
    tokenizer = demo("ref").tokenizer
    ctx = demo("ref").context(n_ctx=256)
    pieces = answer(ctx, max_tokens=5)
    assert [p.token for p in pieces] == greedy(5)
    assert "".join(p.text for p in pieces) == tokenizer.detokenize(greedy(5))
    assert [p.finish_reason for p in pieces] == [None] * 4 + ["length"]
    assert [p.gen_tokens for p in pieces] == [1, 2, 3, 4, 5]
    last = pieces[-1]
    assert last.prompt_tokens == len(tokenizer.tokenize(PROMPT))
    assert last.prompt_seconds > 0
    assert last.gen_seconds >= pieces[0].gen_seconds
    assert ctx.memory.seq_pos_max(0) == last.prompt_tokens + 3  # all but the last
    assert last.prompt_rate > 0 < last.gen_rate


def test_a_stop_string_ends_the_answer_before_it() -> None:
    ctx = demo("ref").context(n_ctx=256)
    text = demo("ref").tokenizer.detokenize(greedy(5))
    word = text.split()[1]
    pieces = answer(ctx, max_tokens=20, stop=[word])
    assert "".join(p.text for p in pieces) == text[: text.index(word)]
    assert pieces[-1].finish_reason == "stop"


def test_the_end_token_ends_the_answer() -> None:
    tokenizer = demo("null").tokenizer
    eos = next(iter(tokenizer.eog))
    sampler = Fixed([65, 66, eos, 67])
    pieces = answer(demo("null").context(n_ctx=256), [5, 6], sampler=sampler)
    assert [p.token for p in pieces] == [65, 66, eos]
    assert pieces[-1].finish_reason == "eos"
    assert "".join(p.text for p in pieces) == tokenizer.detokenize([65, 66])
    assert sampler.accepted == [5, 6, 65, 66, eos]


def test_a_full_context_ends_the_answer() -> None:
    ctx = demo("null").context(n_ctx=256)
    pieces = answer(ctx, [1] * 250, sampler=Fixed([7] * 20))
    assert len(pieces) == 7  # six more cells, and the last token needs none
    assert pieces[-1].finish_reason == "length"
    with pytest.raises(ContextError, match="does not fit"):
        answer(demo("null").context(n_ctx=256), [1] * 257)


def test_a_prompt_alone() -> None:
    ctx = demo("null").context(n_ctx=256)
    (piece,) = answer(ctx, [1, 2], max_tokens=0)
    assert (piece.token, piece.finish_reason, piece.gen_tokens) == (None, "length", 0)
    assert ctx.memory.seq_pos_max(0) == 1


def test_a_second_prompt_goes_on() -> None:
    ctx = demo("null").context(n_ctx=256)
    answer(ctx, [1, 2], max_tokens=3)
    answer(ctx, [3], max_tokens=1)
    assert ctx.memory.seq_pos_max(0) == 4


def test_processors_change_the_logits_in_turn() -> None:
    ids = demo("ref").tokenize(PROMPT)
    seen: list[list[int]] = []

    def prefer_7(so_far: list[int], logits: Any) -> Any:
        seen.append(list(so_far))
        return np.where(np.arange(logits.size) == 7, 1e6, logits)

    def the_next(so_far: list[int], logits: Any) -> Any:
        return np.roll(logits, 1)

    ctx = demo("ref").context(n_ctx=256)
    pieces = answer(ctx, max_tokens=2, logits_processors=[prefer_7, the_next])
    assert [p.token for p in pieces] == [8, 8]
    assert seen == [ids, [*ids, 8]]


def test_log_probabilities_are_the_models_own() -> None:
    ctx, ref = demo("ref").context(n_ctx=256), demo("ref").context(n_ctx=256)
    x = ref.decode(demo("ref").tokenize(PROMPT))[0].astype(np.float64)
    expected = x - np.log(np.exp(x - x.max()).sum()) - x.max()

    def other(so_far: list[int], logits: Any) -> Any:
        return np.where(np.arange(logits.size) == 7, 1e6, logits)

    (piece,) = answer(ctx, max_tokens=1, logprobs=3, logits_processors=[other])
    best = np.argsort(-expected)[:3]
    assert piece.token == 7 and piece.logprob == pytest.approx(expected[7])
    assert [id for id, _ in piece.top] == best.tolist()
    assert [p for _, p in piece.top] == pytest.approx(expected[best])
    ctx.clear()
    (piece,) = answer(ctx, max_tokens=1, logprobs=0)
    assert piece.logprob == pytest.approx(expected.max()) and piece.top == ()
    (piece,) = answer(ctx, [5], max_tokens=1)
    assert piece.logprob is None


def test_a_sequence_goes_on_beside_others() -> None:
    ctx = demo("ref").context(n_ctx=512, n_seq_max=2)
    answer(ctx, [5, 6, 7], max_tokens=2)
    pieces = answer(ctx, max_tokens=5, seq_id=1)
    assert [p.token for p in pieces] == greedy(5)
    assert [ctx.memory.seq_pos_max(s) for s in (0, 1)] == [3, pieces[-1].prompt_tokens + 3]
    with pytest.raises(ContextError, match=r"seq_id must be in \[0, 2\), got 2"):
        answer(ctx, seq_id=2)


def test_greedy_takes_the_largest() -> None:
    assert Greedy().sample(np.array([0, 3, 2], np.float32)) == 1
    for bad in (np.nan, np.inf):
        with pytest.raises(ModelError, match=f"logit of token 2 is {bad}"):
            Greedy().sample(np.array([0, 3, bad, 1], np.float32))


NO_VOCABULARY = {"/tokenizer.ggml.model": "none"}


def test_a_stream_needs_a_tokenizer() -> None:
    with pytest.raises(TokenizerError, match="no vocabulary"):
        answer(Context(model_of(*made("llama-dense", **NO_VOCABULARY)), n_ctx=256))


def test_the_model_knows_its_parts() -> None:
    model = demo("null")
    assert model.arch == "qwen35moe"
    assert model.hparams.n_layer == 4
    assert model.file.architecture == model.arch
    assert "qwen35moe" in repr(model)


def test_importing_the_package_is_cheap() -> None:
    code = (
        "import sys, llama_py; assert callable(llama_py.load); "
        "print([m for m in sys.modules if m.split('.')[0] in ('numpy', 'numba', 'ggml_py')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    for name in llama_py.__all__:
        assert getattr(llama_py, name)
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        llama_py.lod  # noqa: B018
