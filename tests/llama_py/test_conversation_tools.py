"""Conversations whose answers call tools."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import llama_py
from ggml_py.errors import GrammarError, ModelError
from llama_py import Conversation
from llama_py.sampler.draw import GreedyDraw
from tests.support.commands import DEMO, demo_with_template

TEMPLATES = Path(__file__).parents[1] / "data" / "chat" / "templates.json.xz"
City = Literal["Bern", "Oslo"]


def degrees(city: City) -> float:
    """How warm it is in a city."""
    return {"Bern": 12.5, "Oslo": 3.0}[city]


TOLD = {
    "type": "function",
    "function": {
        "name": "degrees",
        "description": "How warm it is in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Bern", "Oslo"]}},
            "required": ["city"],
        },
    },
}


@pytest.fixture(scope="module", params=["", "openai-gpt-oss-120b"])
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[llama_py.Model]:
    """With a template that knows no tools, and one that does."""
    path = DEMO
    if request.param:
        known = json.loads(lzma.decompress(TEMPLATES.read_bytes()))["templates"]
        template = str(known[request.param]["source"])
        path = demo_with_template(tmp_path_factory.mktemp("tools"), template)
    with llama_py.Model(path, "cpu") as model:
        yield model


def roles(talk: Conversation) -> list[str]:
    return [m["role"] for m in talk.messages]


def test_functions_are_called_and_what_they_give_is_told(model: llama_py.Model) -> None:
    talk = Conversation(model.context(2048), tools=[degrees], parallel_tool_calls=False)
    how: dict[str, Any] = {"max_tokens": 400, "tool_choice": "required"}
    pieces = [*talk.run("How warm is it in Bern?", **how)]
    assert roles(talk)[:3] == ["user", "assistant", "tool"] and roles(talk)[-1] == "assistant"
    assert talk.messages[2]["content"] in ("12.5", "3.0")
    deltas = [delta for piece in pieces for delta in piece.tool_calls]
    assert deltas[0].name == "degrees"
    (call,) = (call["function"] for call in talk.messages[1]["tool_calls"])
    first = [d for d in deltas if d.index == 0]
    assert call["arguments"] in "".join(d.arguments for d in first)
    n = len(talk.prefix.tokens)
    assert (
        talk.add_user_message("And in Oslo?") and talk.prefix.n_reused > n // 2
    )  # nothing is read again


def test_thoughts_before_calls_have_a_budget(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{{ m.role }}:"
        "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
        "{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:<think>{% endif %}"
    )
    with llama_py.Model(demo_with_template(tmp_path, template), "cpu") as thinking:
        talk = Conversation(thinking.context(2048), tools=[TOLD], budget=4)
        pieces = [*talk.ask("Speak!", max_tokens=40, tool_choice="none")]
    thought = "".join(piece.reasoning for piece in pieces)
    assert 0 < len(thinking.tokenizer.tokenize(thought, False)) <= 4
    assert talk.messages[-1]["reasoning_content"] == thought and pieces[-1].gen_tokens > 20


def test_calls_of_what_is_only_described_are_the_callers(model: llama_py.Model) -> None:
    talk = Conversation(model.context(2048), tools=[TOLD], parallel_tool_calls=False)
    for _ in talk.run("How warm?", tool_choice="required", max_tokens=400):
        pass
    assert roles(talk) == ["user", "assistant"]
    (call,) = talk.calls
    assert call.name == "degrees"
    result = {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": "4"}
    ids = talk.add_tool_results([result])
    said = "".join(p.text for p in talk.answer(ids, max_tokens=5, tool_choice="none"))
    assert roles(talk) == ["user", "assistant", "tool", "assistant"] and not talk.calls
    assert said and talk.messages[-1]["content"] == said


def test_it_is_asked_as_chat_asks(model: llama_py.Model) -> None:
    question = [{"role": "user", "content": "How warm is it?"}]
    how: dict[str, Any] = {"temp": 0, "max_tokens": 400, "tool_choice": "required"}
    expected = model.chat(question, tools=[degrees], **how)
    assert expected.tool_calls
    talk = Conversation(model.context(2048), tools=[degrees])
    for _ in talk.ask("How warm is it?", **how):
        pass
    assert [(c.name, c.arguments) for c in talk.calls] == [
        (c.name, c.arguments) for c in expected.tool_calls
    ]


def test_an_answer_that_is_left_is_what_was_said_until_then(model: llama_py.Model) -> None:
    talk = Conversation(model.context(2048), tools=[degrees])
    pieces = talk.ask("Speak!", max_tokens=20, tool_choice="none")
    said = next(pieces).text + next(pieces).text + next(pieces).text
    pieces.close()
    assert str(talk.messages[-1]["content"]).startswith(said) and not talk.calls


def test_what_cannot_be_met_is_refused(model: llama_py.Model) -> None:
    talk = Conversation(model.context(2048), tools=[degrees])
    for options, error, words in [
        ({"sampler": GreedyDraw()}, ModelError, "pass temp"),
        ({"regex": "a"}, GrammarError, "pass only one"),
    ]:
        with pytest.raises(error, match=words):
            next(talk.ask("x", tool_choice="required", **options))
        assert talk.messages == []
    with pytest.raises(ModelError, match="tool_choice"):
        next(talk.ask("x", tool_choice="sometimes"))
