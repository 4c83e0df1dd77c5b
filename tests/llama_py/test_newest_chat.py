"""Chat formats that llama.cpp got after 0.5.0, rendered and read like llama-server b11549."""

from __future__ import annotations

import json
import lzma
import random
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import llama_py
from dev.record.newest_chat.scripted import LOGIT, write_script
from ggml_py.errors import ModelError
from llama_py import Conversation
from llama_py.chat import ChatTemplate
from llama_py.chat.plain import PlainFormat
from llama_py.chat.thinking import Tags
from llama_py.chat.tools import ChatAnswer, ChatFormat, ToolCall, build_format
from llama_py.support.warn_once import warn_once
from llama_py.text.chat_prompt import ChatOptions, ChatPrompt
from tests.support.text_vocab import demo_with

FILE = Path(__file__).parents[1] / "data" / "chat" / "newest.json.xz"
RECORDED = json.loads(lzma.decompress(FILE.read_bytes()))
CASES: list[dict[str, Any]] = RECORDED["cases"]
READ = [n for n, case in enumerate(CASES) if case["text"]]
EOS = "<eos>"
IFM, LLM_JP, TRANSLATION = "ifm", "llm-jp", "translation"
USER = {"role": "user", "content": "How is the weather?"}
TOOL = {"type": "function", "function": {"name": "now"}}
CODES = {"source_lang_code": "cs", "target_lang_code": "de-DE"}
OTHER_END = "Let me see.\n</ifm|think>\nIt rains."  # of reasoning, at other efforts


@cache
def template(name: str) -> ChatTemplate:
    return ChatTemplate(RECORDED["templates"][name], EOS, EOS)


def make_form(case: dict[str, Any]) -> ChatFormat:
    body = dict(case["body"])
    messages, variables = body.pop("messages"), body.pop("chat_template_kwargs", {})
    given = body.pop("response_format", None)
    schema = given and given["json_schema"]["schema"]
    return build_format(
        template(case["template"]), messages, json_schema=schema, **body, **variables
    )


def read_message(message: dict[str, Any]) -> ChatAnswer:
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return ChatAnswer(
        message.get("content") or "",
        message.get("reasoning_content", ""),
        tuple(ToolCall(call["name"], call["arguments"]) for call in calls),
    )


def expect_answer(case: dict[str, Any]) -> ChatAnswer:
    """Return their message, with two differences: a continued translation has its beginning, like
    other responses; `</ifm|think>` ends reasoning at each effort (in llama.cpp after b11549)."""
    found = read_message(case["message"])
    if case["template"] == TRANSLATION and "continue_final_message" in case["body"]:
        return ChatAnswer("Es " + found.content)
    effort = case["body"].get("chat_template_kwargs", {}).get("reasoning_effort", "high")
    if effort != "high" and case["text"] == OTHER_END:
        return ChatAnswer("It rains.", "Let me see.\n")
    return found


def read(form: ChatFormat, pieces: list[str]) -> ChatAnswer:
    parser = form.parser(ids=str, echo=True)
    for piece in pieces:
        parser.feed(piece)
    return parser.finish()


def test_all_are_there() -> None:
    assert RECORDED["build"] == "b11549" and len(CASES) == 158 and len(READ) == 98


@pytest.mark.parametrize("number", range(len(CASES)))
def test_prompts_are_those_of_the_server(number: int) -> None:
    assert make_form(CASES[number]).prompt == CASES[number]["prompt"]


@pytest.mark.parametrize("number", READ)
def test_responses_are_read_as_the_server_reads_them(number: int) -> None:
    case = CASES[number]
    form, text, found = make_form(case), case["text"], expect_answer(case)
    draw = random.Random(number)
    assert read(form, [text]) == found == read(form, list(text))
    for _ in range(3):
        places = sorted(draw.sample(range(len(text) + 1), 4))
        cuts = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
        assert read(form, cuts) == found, cuts


@pytest.mark.parametrize("number", READ)
def test_responses_are_allowed(number: int) -> None:
    form, case = make_form(CASES[number]), CASES[number]
    tokenizer = demo_with(*form.preserved_tokens, "<|return|>", "<|call|>")
    constraint = form.constraint(tokenizer)
    if constraint is None:
        assert not form.form.grammar
        return
    text = case["text"].replace("'", '"')  # quotes of strings, as a grammar writes them
    if case["body"].get("response_format"):
        text = re.sub(r" <\|constrain\|> ?json", "", text)
    ids = tokenizer.tokenize(text, False)
    assert constraint.n_allowed(ids) == len(ids)
    for id in ids:
        constraint.accept(id)
    assert constraint.complete


def needs_no_format(case: dict[str, Any]) -> bool:
    """Return True for responses of text and reasoning, which `PlainFormat` parses."""
    body = case["body"]
    plain = {*body} <= {"messages", "reasoning_format", "chat_template_kwargs"}
    return plain and body["reasoning_format"] == "auto" and case["template"] != LLM_JP


@pytest.mark.parametrize("number", [n for n in READ if needs_no_format(CASES[n])])
def test_plain_responses_are_read_without_a_format(number: int) -> None:
    case = CASES[number]
    variables, one = case["body"].get("chat_template_kwargs", {}), template(case["template"])
    prompt = one.render(case["body"]["messages"], **variables)
    thinks = variables.get("enable_thinking", True)
    parser = PlainFormat(prompt, one.tags(variables), thinks).parser()
    for letter in case["text"]:
        parser.feed(letter)
    parser.rest()
    found, whole = parser.answer, expect_answer(case)
    assert (found.reasoning, found.content.strip()) == (whole.reasoning, whole.content.strip())


def test_reasoning_has_the_tags_of_its_effort() -> None:
    one = template(IFM)
    fast = Tags("<ifm|think_fast>", ("</ifm|think_fast>", "</ifm|think>"))
    usual = Tags("<ifm|think>", ("</ifm|think>",))
    assert one.tags({"reasoning_effort": "medium"}) == fast
    assert one.tags({}) == one.tags({"reasoning_effort": "high"}) == usual
    assert one.tags({"reasoning_effort": "medium", "enable_thinking": False}) == usual
    assert template(TRANSLATION).tags({"reasoning_effort": "medium"}) is None
    begun = build_format(one, [USER], reasoning_effort="low").thinking
    assert begun is not None and begun.inside
    assert begun.ends[:2] == ("</ifm|think_faster>", "</ifm|think>")


@pytest.mark.parametrize(
    ("name", "thought", "call"),
    [
        (
            IFM,
            "</ifm|think>",
            "<ifm|tool_calls><ifm|tool_call>{}\n</ifm|tool_call></ifm|tool_calls>",
        ),
        (LLM_JP, "", " to=functions.{}<|channel|> commentary<|message|> {{}}"),
    ],
)
def test_a_call_of_an_unknown_tool_is_content(name: str, thought: str, call: str) -> None:
    form = build_format(template(name), [USER], tools=[TOOL])
    assert read(form, [thought + call.format("now")]).tool_calls == (ToolCall("now", "{}"),)
    unknown = call.format("later")
    for pieces in ([thought + unknown], list(thought + unknown)):
        assert read(form, pieces) == ChatAnswer(unknown)


def test_text_after_calls_is_dropped() -> None:
    form = build_format(template(IFM), [USER], tools=[TOOL])
    text = "<ifm|tool_calls><ifm|tool_call>now\n</ifm|tool_call></ifm|tool_calls>"
    assert read(form, ["</ifm|think>" + text + " Bye."]).content == ""


def test_calls_are_told_as_they_come() -> None:
    form = build_format(template(LLM_JP), [USER], tools=[TOOL])
    parser = form.parser(ids=lambda: "1")
    assert [d.reasoning for d in parser.feed("<|channel|> analysis<|message|> Cl")] == ["Cl"]
    assert not parser.feed("<|end|><|start|> assistant to=functions.now<|channel|> commentary")
    named, begun = parser.feed("<|message|>")
    assert (named.index, named.name, named.id, begun.arguments) == (0, "now", "1", "{")
    assert [d.arguments for d in parser.feed(' {"a')] == ['"a']


def test_one_call_only_if_several_may_not_be() -> None:
    call = " to=functions.now<|channel|>commentary<|message|>{}"
    text = f"{call}<|end|><|start|>assistant{call}"
    for several in (True, False):
        form = build_format(template(LLM_JP), [USER], tools=[TOOL], parallel_tool_calls=several)
        assert len(read(form, [text]).tool_calls) == 1 + several


def test_a_message_may_have_its_languages() -> None:
    part = {"type": "text", "text": "Prší.", **CODES}
    said = {"role": "assistant", "content": [{"type": "text", "text": "Es regnet."}]}
    prompt = template(TRANSLATION).render([{"role": "user", "content": [part]}, said, USER])
    assert "Translate Czech (cs) to German:\n\nPrší." in prompt
    assert "British English (en-GB) to British English:\n\nHow is" in prompt
    assert "<start_of_turn>model\nEs regnet.<end_of_turn>" in prompt


def make_prompt(name: str, messages: Any, tools: Any = None, **options: Any) -> ChatPrompt:
    tokenizer = demo_with("<|channel|>", "<|message|>", "<|start|>", "<|end|>")
    model: Any = SimpleNamespace(chat_template=template(name), tokenizer=tokenizer)
    return ChatPrompt(model, messages, tools, ChatOptions(**options))


def test_missing_languages_are_told(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    given = [{"role": "user", "content": [{"type": "text", "text": "Prší.", **CODES}]}]
    for messages, variables in ((given, {}), ([USER], CODES)):
        make_prompt(TRANSLATION, messages, variables=variables)
    make_prompt(IFM, [USER])
    assert not caplog.messages
    for _ in range(2):
        make_prompt(TRANSLATION, [USER], variables={"source_lang_code": "cs"})
    assert [m.partition(" not set")[0] for m in caplog.messages] == ["target_lang_code"]


def test_a_translator_calls_no_tools() -> None:
    one = template(TRANSLATION)
    with pytest.raises(ModelError, match="only translates text; omit tools"):
        build_format(one, [USER], tools=[TOOL], tool_choice="required", **CODES)
    assert "now" not in build_format(one, [USER], tools=[TOOL], **CODES).prompt
    form = build_format(one, [USER], json_schema={"type": "object"}, **CODES)
    assert form.constraint(demo_with()) is not None
    assert read(form, ['{"a": 1}']).content == '{"a": 1}'


def test_spaces_after_control_tokens_need_the_format() -> None:
    text = "<|channel|> analysis<|message|> Clouds.<|end|><|start|> assistant<|channel|> final"
    for tools in (None, []):
        reader = make_prompt(LLM_JP, [USER], tools).reader()
        for piece in (text, "<|message|> Rain."):
            reader.feed(piece)
        assert reader.answer == ChatAnswer("Rain.", "Clouds.")
    assert isinstance(make_prompt(IFM, [USER]).format, PlainFormat)


def spoken() -> list[int]:
    """Return the first response of each template with and without calls."""
    found: dict[tuple[str, bool], int] = {}
    for n in READ:
        body, message = CASES[n]["body"], CASES[n]["message"]
        if "continue_final_message" not in body and body["reasoning_format"] == "auto":
            found.setdefault((CASES[n]["template"], bool(message.get("tool_calls"))), n)
    return list(found.values())


@pytest.mark.parametrize("number", spoken())
def test_a_model_that_writes_a_response(number: int, tmp_path: Path) -> None:
    case = CASES[number]
    script = write_script(tmp_path / "script.gguf", case["text"])
    *messages, last = case["body"]["messages"]
    with llama_py.load(tmp_path / "script.gguf") as model, model.context(n_ctx=4096) as ctx:
        model.set_chat_template(RECORDED["templates"][case["template"]])
        variables = case["body"].get("chat_template_kwargs")
        chat = Conversation(ctx, tools=case["body"].get("tools", ()), variables=variables)
        pieces = chat.ask(
            last["content"], temp=0, logit_bias={script.first: LOGIT / 2}, max_tokens=script.n + 4
        )
        thought = "".join(piece.reasoning for piece in pieces)
        said = chat.messages[-1]
    found, whole = read_message(said), expect_answer(case)
    assert not messages and thought.strip() == whole.reasoning.strip()
    assert found.content.strip() == whole.content.strip() and found.reasoning == whole.reasoning
    assert found.tool_calls == whole.tool_calls
