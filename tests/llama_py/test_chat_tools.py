"""A model that is given tools calls them as it must."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import GrammarError, ModelError
from llama_py import Model
from llama_py.chat.answer import ChatAnswer
from llama_py.chat.template import ChatTemplate
from llama_py.chat.tools import build_format
from llama_py.sampler.draw import GreedyDraw

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {"days": {"type": "integer", "maximum": 9}},
                "required": ["days"],
            },
        },
    }
]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"days": 3}}\n</tool_call>'


class Says:
    """Lets a model want to write a text."""

    def __init__(self, model: Model, text: str) -> None:
        self.ids = [*model.tokenizer.tokenize(text, False, False), min(model.tokenizer.eog)]
        self.start = -1

    def __call__(self, ids: Sequence[int], logits: Any) -> Any:
        if self.start < 0:
            self.start = len(ids)
        at = min(len(ids) - self.start, len(self.ids) - 1)
        wanted = np.zeros_like(logits)
        wanted[self.ids[at]] = 10
        return wanted


@pytest.fixture(scope="module")
def model() -> Model:
    return llama_py.load()


def options(model: Model, text: str) -> dict[str, Any]:
    return {"temp": 0, "max_tokens": 100, "logits_processors": (Says(model, text),)}


def test_a_call_is_an_answer(model: Model) -> None:
    answer = model.chat("And?", tools=TOOLS, **options(model, f"Well. {CALL}"))
    assert isinstance(answer, ChatAnswer) and answer.content == "Well. "
    [call] = answer.tool_calls
    assert call.name == "weather" and json.loads(call.arguments) == {"days": 3}
    assert len(call.id) == 32 and answer.message()["tool_calls"][0]["id"] == call.id


def test_a_sampler_that_does_not_know_the_tools_is_refused(model: Model) -> None:
    with pytest.raises(ModelError, match="need a grammar, which the given sampler"):
        model.chat("And?", tools=TOOLS, sampler=GreedyDraw(), tool_choice="required")


def test_pieces_have_the_calls(model: Model) -> None:
    pieces = list(model.stream_chat("And?", tools=TOOLS, **options(model, f"Well. {CALL}")))
    assert "".join(piece.text for piece in pieces) == "Well. "
    deltas = [delta for piece in pieces for delta in piece.tool_calls]
    assert "".join(delta.arguments for delta in deltas) == '{"days": 3}'
    assert [delta.name for delta in deltas if delta.name] == ["weather"]
    assert pieces[-1].finish_reason == "eos" and len(pieces) > 20


def test_a_model_cannot_call_wrongly(model: Model) -> None:
    wrong = CALL.replace("3", "12")
    answer = model.chat("And?", tools=TOOLS, **options(model, wrong))
    assert isinstance(answer, ChatAnswer)
    for call in answer.tool_calls:
        assert json.loads(call.arguments)["days"] <= 9


def test_an_answer_without_calls(model: Model) -> None:
    answer = model.chat("And?", tools=TOOLS, **options(model, "No."))
    assert answer == ChatAnswer("No.")
    assert model.chat(
        "And?", tools=TOOLS, tool_choice="none", **options(model, CALL)
    ) == ChatAnswer(CALL)


def test_what_cannot_be_is_refused(model: Model) -> None:
    with pytest.raises(GrammarError, match="tools cannot be combined with regex"):
        model.chat("And?", tools=TOOLS, regex="a")
    with pytest.raises(ModelError, match="tool_choice must be one of"):
        model.chat("And?", tools=TOOLS, tool_choice="perhaps")


def test_a_template_that_is_none_is_refused() -> None:
    with pytest.raises(ModelError, match="chat template"):
        build_format(ChatTemplate("{% if %}"), [{"role": "user", "content": "hi"}])
