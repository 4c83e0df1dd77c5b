"""What somebody who knows another library types first: one line works, or says what does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError, ModelError

SHORT: Any = {"temp": 0, "max_tokens": 8}


def test_public_names() -> None:
    assert dir(llama_py) == sorted([*llama_py.__all__, "__version__"])
    assert all(getattr(llama_py, name) is not None for name in dir(llama_py))


def test_one_liners(model: llama_py.Model) -> None:
    assert llama_py.load().chat("hi", max_tokens=40, temp=0) != ""
    assert model.generate("ROMEO:", **SHORT).startswith(" I am")
    assert model.embed("love").shape == (256,)


def test_the_demo_answers_with_one_speech(model: llama_py.Model) -> None:
    """Its template says where an answer ends."""
    pieces = list(model.stream_chat("Who is there?", temp=0))
    said = "".join(piece.text for piece in pieces)
    assert pieces[-1].finish_reason == "stop" and said.strip() and "\n\n" not in said
    assert model.chat("Who is there?", temp=0) == said


def test_bytes_are_a_text(model: llama_py.Model) -> None:
    prompt = "ROMEO: é"
    expected = model.generate(prompt, **SHORT)
    given = (prompt.encode(), bytearray(prompt.encode()))
    assert [model.generate(p, **SHORT) for p in given] == [expected] * 2  # type: ignore[arg-type]
    assert model.tokenize(prompt.encode()) == model.tokenize(prompt)
    assert model.chat(b"hi", **SHORT) == model.chat("hi", **SHORT)  # type: ignore[arg-type]
    np.testing.assert_array_equal(model.embed(b"love"), model.embed("love"))
    ctx = model.context(256)
    pieces = llama_py.stream(ctx, prompt.encode(), max_tokens=8)
    assert "".join(p.text for p in pieces) == expected


@pytest.mark.parametrize("prompt", [b"\xff\xfe", b"ROMEO:\xc3"])
def test_other_bytes_are_refused(model: llama_py.Model, prompt: bytes) -> None:
    with pytest.raises(ModelError, match=r"bytes must be UTF-8, .* list"):
        model.generate(prompt)


@pytest.mark.parametrize("prompt", [7, None, {"role": "user"}, ["a", "b"]])
def test_what_is_no_prompt_is_refused(model: llama_py.Model, prompt: Any) -> None:
    with pytest.raises(ModelError, match="prompt must be a string or a list of token ids, got"):
        model.generate(prompt)


@pytest.mark.parametrize("tokens", [b"a", bytearray(b"a"), "a"])
def test_a_context_takes_ids_only(model: llama_py.Model, tokens: Any) -> None:
    ctx = model.context(256)
    ctx.decode([5])  # so that the next may go the short way
    with pytest.raises(
        ContextError, match=r"must be token ids, got a string; use model.tokenize\(text\)"
    ):
        ctx.decode(tokens)


ELSEWHERE = [
    ("model", "decode", r"Model has no .* 'decode'; use a context: ctx = model.con"),
    ("model", "create_completion", "use generate"),
    ("ctx", "generate", r"Context .*; use llama_py.stream\(ctx, prompt\), or ctx.model.gen"),
    ("ctx", "tokenize", "use ctx.model.tokenize"),
    ("ctx", "chat", "use ctx.model.chat"),
    ("llama_py", "Llama", r"use llama_py.load\(path\)"),
]


@pytest.mark.parametrize(("what", "name", "hint"), ELSEWHERE)
def test_errors_name_the_object_that_can(
    model: llama_py.Model, what: str, name: str, hint: str
) -> None:
    of: dict[str, Any] = {"model": model, "ctx": model.context(256), "llama_py": llama_py}
    with pytest.raises(AttributeError, match=hint):
        getattr(of[what], name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        of[what].nonsense  # noqa: B018
    assert not hasattr(of[what], name)
