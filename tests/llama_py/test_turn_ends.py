"""A tool call is whole, whatever its template has between messages."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from llama_py import Conversation
from llama_py.batch import F32
from llama_py.chat import ChatTemplate
from llama_py.chat.budget import ThoughtBudget
from llama_py.chat.tools import build_format
from llama_py.serving import Engine, Request
from llama_py.text.chat_prompt import ChatPrompt
from tests.support.commands import demo_with_template
from tests.support.text_vocab import demo_with

TEMPLATE = Path(__file__).parents[2] / "dev" / "clients" / "template.jinja"
KNOWN = Path(__file__).parents[1] / "data" / "chat" / "templates.json.xz"
TOOL = {
    "type": "function",
    "function": {
        "name": "act",
        "parameters": {"type": "object", "properties": {"what": {"const": "a; b"}}},
    },
}
CALL = '<tool_call>\n{"name": "act", "arguments": {"what": "a; b"}}\n</tool_call>'
ASKED = [{"role": "user", "content": "Act!"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[llama_py.Model]:
    """Its messages end with "; "."""
    source = TEMPLATE.read_text().replace(".\\n\\n", "; ").replace("\\n\\n", "; ")
    with llama_py.Model(
        demo_with_template(tmp_path_factory.mktemp("ends"), source), "cpu"
    ) as model:
        yield model


def write(model: llama_py.Model, text: str) -> Callable[[Sequence[int], F32], F32]:
    """Return a processor with which the model writes a text first."""
    left = model.tokenizer.tokenize(text, False)

    def process(ids: Sequence[int], logits: F32) -> F32:
        if left:
            logits = logits.copy()
            logits[left.pop(0)] += 1000
        return logits

    return process


def said(model: llama_py.Model, text: str) -> tuple[str, list[str]]:
    """Return the content and the calls' arguments of a response that begins with a text."""
    talk = Conversation(model.context(1024), tools=[TOOL], parallel_tool_calls=False)
    how: dict[str, Any] = {"temp": 0, "max_tokens": 200}
    pieces = [*talk.ask("Act!", logits_processors=[write(model, text)], **how)]
    return "".join(p.text for p in pieces), [call.arguments for call in talk.calls]


def test_the_end_of_a_turn_may_be_within_a_call(model: llama_py.Model) -> None:
    content, calls = said(model, "So: " + CALL)
    assert content == "So: " and [json.loads(one) for one in calls] == [{"what": "a; b"}]


def test_the_end_of_a_turn_before_a_call(model: llama_py.Model) -> None:
    assert said(model, "So; " + CALL) == ("So", [])


def test_a_grammar_ends_the_turn_itself(model: llama_py.Model) -> None:
    pieces = [*model.stream_chat(ASKED, regex="a; b; c", max_tokens=20, temp=0)]
    assert "".join(piece.text for piece in pieces) == "a; b; c"


def test_the_engine_ends_no_call_either(model: llama_py.Model) -> None:
    chat = ChatPrompt(model, ASKED, [TOOL])
    p = llama_py.AnswerParams(
        max_tokens=200, temp=0, logits_processors=[write(model, CALL)], stop=("never",)
    )
    with Engine(model, n_ctx=512) as engine:
        request = Request(prompt=chat.ids(), params=p, chat=chat)
        text = "".join(event.text for event in engine.stream(request))
    assert [call.name for call in chat.format.parse(text).tool_calls] == ["act"], text


def test_a_budget_of_reasoning_ends_no_call() -> None:
    """Kimi may begin calls without the end of its reasoning."""
    known = json.loads(lzma.decompress(KNOWN.read_bytes()))["templates"]
    template = ChatTemplate(known["Kimi-K2-Thinking"]["source"], "<s>", "</s>")
    form = build_format(template, ASKED, tools=[TOOL])
    tokenizer, tags = demo_with(), template.tags({})
    assert tags is not None
    call = "<|tool_calls_section_begin|><|tool_call_begin|>functions.act:0"
    for text, forced in [("<think>So?", True), (f"<think>So?{call}", False)]:
        budget = ThoughtBudget(tokenizer, tags, 40, starts_call=form.call_scan())
        ids = tokenizer.tokenize(text, False)
        row: F32 = np.zeros(tokenizer.n_vocab, np.float32)
        budget([], row)
        more = tokenizer.tokenize("x" * 400, False)
        assert (budget([*ids, *more], row) is not row) == forced
