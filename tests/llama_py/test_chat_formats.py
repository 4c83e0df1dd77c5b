"""Answers are asked for and read as llama.cpp does it: the cases of its own test-chat."""

from __future__ import annotations

import datetime
import json
import lzma
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ggml_py.errors import ModelError
from llama_py.chat import ChatTemplate, sandbox
from llama_py.chat.answer import as_json
from llama_py.chat.peg.found import ParsedText, ParseResult
from llama_py.chat.peg.values import NUMBER
from llama_py.chat.tools import (
    AnswerDelta,
    ChatAnswer,
    ChatFormat,
    ToolCall,
    build_format,
    response_schema,
)

FOLDER = Path(__file__).parents[1] / "data" / "chat"
RECORDED, TEMPLATES = (
    json.loads(lzma.decompress((FOLDER / f"{name}.json.xz").read_bytes()))
    for name in ("formats", "templates")
)
CASES = RECORDED["cases"]
CHOICES = ("auto", "required", "none")
CONTINUED = (False, True, "reasoning_content", "content")
WORD = 1  # the kind of a trigger that is a text
# Marks that are no tokens of these models, or that llama.cpp misses.
OTHER_TOKENS = {
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
}


def name_of(case: dict[str, Any]) -> str:
    return Path(case["template"]).stem


def of(name: str) -> list[tuple[int, dict[str, Any]]]:
    return [(number, case) for number, case in enumerate(CASES) if name_of(case) == name]


NAMES = sorted({name_of(case) for case in CASES})


@pytest.fixture(autouse=True)
def day(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the record, which some prompts have."""
    recorded = datetime.datetime.fromisoformat(RECORDED["day"])
    monkeypatch.setattr(sandbox, "now", lambda: recorded)


@cache
def template(name: str) -> ChatTemplate:
    return ChatTemplate(TEMPLATES["templates"][name]["source"])


@cache
def format_for(number: int) -> ChatFormat:
    case = CASES[number]
    return build_format(
        template(name_of(case)),
        case["messages"],
        tools=[{"type": "function", "function": tool} for tool in case["tools"]],
        tool_choice=CHOICES[case["tool_choice"]],
        parallel_tool_calls=case["parallel"],
        json_schema=json.loads(case["json_schema"]) if case["json_schema"] else None,
        reasoning_format=case["reasoning_format"],
        add_generation_prompt=case["add_generation_prompt"],
        continue_final_message=CONTINUED[case["continuation"]],
        enable_thinking=case["enable_thinking"],
    )


def expected(case: dict[str, Any]) -> ChatAnswer:
    found = case["parsed"]
    calls = tuple(ToolCall(c["name"], c["arguments"], c["id"]) for c in found["tool_calls"])
    return ChatAnswer(found["content"], found["reasoning_content"], calls)


def read(form: ChatFormat, pieces: list[str], whole: bool) -> tuple[ChatAnswer, list[AnswerDelta]]:
    parser = form.parser(ids=str, echo=True)
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    deltas += parser.rest() if whole else []
    return parser.answer, deltas


def joined(deltas: list[AnswerDelta]) -> ChatAnswer:
    """What a client makes of deltas."""
    calls: list[ToolCall] = []
    for delta in deltas:
        if delta.index is None:
            assert delta.content or delta.reasoning
            continue
        if delta.name:
            assert delta.index == len(calls)
            calls.append(ToolCall(delta.name, "", delta.id))
        call = calls[delta.index]
        calls[delta.index] = ToolCall(call.name, call.arguments + delta.arguments, call.id)
    said = "".join(delta.content for delta in deltas)
    return ChatAnswer(said, "".join(delta.reasoning for delta in deltas), tuple(calls))


def test_all_are_there() -> None:
    assert len(CASES) == 463 and len(NAMES) == 58 and len(RECORDED["analysis"]) == 70


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_read_as_llama_cpp_reads_them(name: str) -> None:
    for number, case in of(name):
        form = format_for(number)
        assert form.generation_prompt == case["generation_prompt"]
        assert form.prompt == case["prompt"]
        if name not in OTHER_TOKENS:
            assert set(form.preserved_tokens) == set(case["preserved_tokens"])
        assert form.form.grammar == case["has_grammar"]
        if form.form.grammar:
            assert form.lazy == case["lazy"]
        if form.lazy and not form.form.patterns:
            words = [trigger["value"] for trigger in case["triggers"] if trigger["type"] == WORD]
            assert set(form.form.words) == set(words)
        assert list(form.stops) == case["stops"]
        answer, deltas = read(form, [case["input"]], not case["partial"])
        assert answer == expected(case) == joined(deltas)


@pytest.mark.parametrize("name", NAMES)
def test_any_cut_gives_the_same_answer(name: str) -> None:
    draw = random.Random(name)
    for number, case in of(name):
        form, text = format_for(number), case["input"]
        whole, _ = read(form, [text], not case["partial"])
        places = sorted(draw.sample(range(len(text) + 1), min(len(text), draw.randrange(1, 12))))
        cuts = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
        for pieces in (list(text), cuts):
            answer, deltas = read(form, pieces, not case["partial"])
            assert answer == whole == joined(deltas), pieces


TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'
ASKED = [{"role": "user", "content": "How is the weather in Bern?"}]


def test_an_unknown_tool_is_said() -> None:
    form = build_format(template("Qwen-Qwen3-0.6B"), ASKED, tools=[TOOL])
    text = 'Yes.\n<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>'
    whole, _ = read(form, [text], True)
    assert whole == ChatAnswer(text) == read(form, list(text), True)[0]


def test_a_tag_that_does_not_come_is_said() -> None:
    form = build_format(template("Qwen-Qwen3-0.6B"), ASKED, tools=[TOOL])
    for text in ("5 <", "5 <tool", "a <tool_call"):
        assert read(form, list(text), True) == (ChatAnswer(text), read(form, list(text), True)[1])
        assert read(form, [text], True)[0] == ChatAnswer(text)


def test_ids_are_made_once() -> None:
    form = build_format(template("Qwen-Qwen3-0.6B"), ASKED, tools=[TOOL])
    parser = form.parser()
    deltas = [delta for letter in CALL for delta in parser.feed(letter)]
    ids = [delta.id for delta in deltas if delta.id]
    assert len(ids) == 1 and len(ids[0]) == 32
    assert parser.finish().tool_calls == (ToolCall("weather", '{"city": "Bern"}', ids[0]),)


def test_a_message_goes_into_the_next_prompt() -> None:
    form = build_format(template("Qwen-Qwen3-0.6B"), ASKED, tools=[TOOL])
    answer = form.parse(CALL)
    result = {"role": "tool", "tool_call_id": answer.tool_calls[0].id, "content": "rain"}
    messages = [*ASKED, answer.message(), result]
    more = build_format(template("Qwen-Qwen3-0.6B"), messages, tools=[TOOL])
    assert '{"name": "weather", "arguments": {"city": "Bern"}}' in more.prompt


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"tool_choice": "sometimes"}, "tool_choice must be one of"),
        ({"tool_choice": {"function": {"name": "other"}}}, "unknown tool 'other'"),
        ({"tools": None, "tool_choice": "required"}, "tools is empty"),
        ({"tools": [{"type": "web"}]}, "a tool must be a function"),
        ({"reasoning_format": "loud"}, "reasoning_format must be one of"),
        ({"continue_final_message": "no"}, "continue_final_message must be"),
    ],
)
def test_what_is_wrong_is_refused(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(ModelError, match=rule):
        build_format(template("Qwen-Qwen3-0.6B"), ASKED, **{"tools": [TOOL], **options})


def test_a_tool_can_be_named() -> None:
    now = {"type": "function", "function": {"name": "now"}}
    choice = {"type": "function", "function": {"name": "weather"}}
    form = build_format(template("Qwen-Qwen3-0.6B"), ASKED, tools=[now, TOOL], tool_choice=choice)
    assert '"now"' in form.prompt and not form.lazy
    text = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    assert form.parse(text) == ChatAnswer(text)


def test_what_was_there_is_not_told_again() -> None:
    messages = [*ASKED, {"role": "assistant", "content": "Hello, "}]
    form = build_format(template("Qwen-Qwen3-0.6B"), messages, continue_final_message=True)
    parser = form.parser()
    assert joined(parser.feed("world")) == ChatAnswer("world") and parser.finish().content == (
        "Hello, world"
    )


def test_templates_without_tools_are_told_of_them() -> None:
    plain = template("google-gemma-2-2b-it")
    form = build_format(plain, ASKED, tools=[TOOL])
    assert '"description": "Of a city"' in form.prompt and form.lazy
    answer = form.parse(f"Well. {CALL}", ids=lambda: "1")
    assert answer == ChatAnswer("Well. ", "", (ToolCall("weather", '{"city": "Bern"}', "1"),))
    result = {"role": "tool", "tool_call_id": "1", "content": "rain"}
    more = build_format(plain, [*ASKED, answer.message(), result], tools=[TOOL])
    assert CALL in more.prompt and "<tool_response>\nrain\n</tool_response>" in more.prompt
    assert build_format(plain, ASKED).parse(CALL) == ChatAnswer(CALL)


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_object", "schema": {"type": "array"}}, {"type": "array"}),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "null"}}},
            {"type": "null"},
        ),
    ],
)
def test_response_formats_are_schemas(given: Any, schema: Any) -> None:
    assert response_schema(given) == schema


def test_other_response_formats_are_refused() -> None:
    with pytest.raises(ModelError, match="response_format: type must be text"):
        response_schema({"type": "sound"})


@pytest.mark.parametrize(
    ("text", "json"),
    [
        ("{'a': 'it\\'s \"so\"', \"b\": True}", '{"a": "it\'s \\"so\\"", "b": true}'),
        ("[None, False, Xot, 'True'", '[null, false, Xot, "True"'),
        ("Tr", "tr"),
        ("'ab\\", '"ab\\'),
        ('"x\\"True\\""', '"x\\"True\\""'),
        ("-1.5e3", "-1.5e3"),
    ],
)
def test_python_values_are_json(text: str, json: str) -> None:
    assert as_json(text) == json
    for n in range(len(text)):  # as they come
        assert json.startswith(as_json(text[:n])) or text[n - 1] in "\\TFN"


def test_nothing_is_looked_at_again_and_again() -> None:
    """A long list is read once, however many pieces it comes in."""
    form = build_format(template("Qwen-Qwen3-0.6B"), ASKED, tools=[TOOL])
    looked = 0

    def counted(text: ParsedText, at: int) -> ParseResult:
        nonlocal looked
        looked += 1
        return parse(text, at)

    rows = ",".join(map(str, range(2000)))
    text = f'<tool_call>\n{{"name": "weather", "arguments": {{"city": "", "rows": [{rows}]}}}}'
    parse, parser = NUMBER.parse, form.parser()
    NUMBER.parse = counted  # type: ignore[method-assign]
    try:
        for i in range(0, len(text), 5):
            parser.feed(text[i : i + 5])
    finally:
        del NUMBER.parse
    assert parser.answer.tool_calls[0].arguments.endswith("1999]}")
    assert 2000 < looked < 3 * len(text) // 5


def test_deep_values_are_no_end() -> None:
    form = build_format(template("Qwen-Qwen3-0.6B"), ASKED, tools=[TOOL])
    text = '<tool_call>\n{"name": "weather", "arguments": {"city": ' + "[" * 5000
    answer = form.parse(text)
    assert (answer.content + "".join(c.arguments for c in answer.tool_calls)).endswith("[[[")
