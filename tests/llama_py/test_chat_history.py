"""Conversations that the interfaces allow reach the model whole, whatever its template takes."""

from __future__ import annotations

import json
import lzma
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ggml_py.errors import ModelError
from llama_py.chat import ChatTemplate
from llama_py.chat.history import REPAIRS, render_history
from llama_py.chat.messages import RAW
from llama_py.chat.tools import build_format

Message = dict[str, Any]
FOLDER = Path(__file__).parents[1] / "data" / "chat"
SOURCES = {
    name: found["source"]
    for name, found in json.loads(lzma.decompress((FOLDER / "templates.json.xz").read_bytes()))[
        "templates"
    ].items()
}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
ROLES = {"s": "system", "d": "developer", "u": "user", "a": "assistant", "t": "tool"}
# Roles of the messages, one letter each; c and C are answers with one and with two calls.
SHAPES = (
    "suasu",
    "uasu",
    "uaus",
    "usu",
    "ssu",
    "sdu",
    "du",
    "s",
    "ss",
    "a",
    "sau",
    "au",
    "uu",
    "suu",
    "uaau",
    "uct",
    "uctu",
    "ucu",
    "uCtt",
    "uCttau",
    "ucstu",
    "ucuts",
    "sct",
    "uctctu",
    "uacta",
)
# Some templates drop the text of an answer with calls, or calls and results, from any conversation.
DROPS = {"llama-cpp-rwkv-world", "microsoft-Phi-3.5-mini-instruct"}
# This one tells of the system before the last message only, if a user has written it.
SYSTEM_LAST = {"mistralai-Mistral-Nemo-Instruct-2407"}


@cache
def template(name: str) -> ChatTemplate:
    return ChatTemplate(SOURCES[name], "<s>", "</s>")


def conversation(shape: str, arguments: str = '{"a": 1}') -> list[Message]:
    """Messages with contents of their own; ids as OpenAI's servers make them."""
    found: list[Message] = []
    waiting: list[str] = []
    for i, letter in enumerate(shape):
        if letter in "cC":
            waiting = [f"call_{i}{n}0123456789abcdefg" for n in range(1 + (letter == "C"))]
            function = {"name": "f", "arguments": arguments}
            calls = [{"id": id, "type": "function", "function": function} for id in waiting]
            found.append({"role": "assistant", "content": None, "tool_calls": calls})
            continue
        message = {"role": ROLES[letter], "content": f"MESSAGE{i}X"}
        found.append(message | ({"tool_call_id": waiting.pop(0)} if letter == "t" else {}))
    return found


def contents(messages: list[Message]) -> list[str]:
    return [m["content"] for m in messages if m["content"]]


@pytest.mark.parametrize("name", SOURCES)
def test_every_message_is_in_the_prompt(name: str) -> None:
    for shape in SHAPES:
        messages = conversation(shape)
        text = template(name).render(messages, tools=TOOLS if "c" in shape.lower() else None)
        wanted = [
            m["content"]
            for m in messages
            if m["content"]
            and not (m["role"] == "tool" and name in DROPS)
            and not (m["role"] == "system" and name in SYSTEM_LAST and shape[-1] != "u")
        ]
        assert [content for content in wanted if content not in text] == [], shape


@pytest.mark.parametrize("name", SOURCES)
def test_arguments_of_earlier_calls_are_anything(name: str) -> None:
    """Those that are no object become a text or one raw member; none at all an empty object."""
    rendered = {
        text: template(name).render(conversation("uctau", text), tools=TOOLS)
        for text in ("", "null", "{}", '{"a": "VALUE', "VALUE", '["VALUE"]', '"VALUE"')
    }
    assert rendered[""] == rendered["null"] == rendered["{}"]
    shown = "VALUE" in template(name).render(conversation("uctau", '{"a": "VALUE"}'), tools=TOOLS)
    texts = [text for text in rendered if "VALUE" in text]
    assert [text for text in texts if "VALUE" not in rendered[text]] == ([] if shown else texts)


@pytest.mark.parametrize("name", SOURCES)
def test_parts_of_text_are_as_the_text(name: str) -> None:
    messages = conversation("suctau")
    wanted = template(name).render(messages, tools=TOOLS)
    for i, message in enumerate(messages):
        if message["content"]:
            changed = [*messages]
            changed[i] = {**message, "content": [{"type": "text", "text": message["content"]}]}
            assert template(name).render(changed, tools=TOOLS) == wanted, message["role"]


def test_parts_that_are_no_text_are_refused() -> None:
    message = {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}
    with pytest.raises(ModelError, match="part 'input_audio'; the chat template takes text"):
        ChatTemplate("{{ messages[0].content }}").render([message])


@pytest.mark.parametrize("name", ("Qwen3.5-4B", "MiniMax-M2", "google-gemma-2-2b-it"))
def test_a_system_message_amid_changes_no_text_before_it(name: str) -> None:
    before = template(name).render(conversation("suau")).partition("MESSAGE3X")[0]
    assert template(name).render(conversation("suasu")).startswith(before)


def test_a_conversation_that_is_taken_stays_as_it_is() -> None:
    source = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
    text = ChatTemplate(source).render(conversation("ssuusCtt"), add_generation_prompt=False)
    assert text.count("system:") == 3 and text.count("tool:") == 2 and text.count("user:") == 2


def test_repairs_are_those_that_help() -> None:
    """One that is of no use is not made, though it comes before."""

    def render(messages: list[Message]) -> str:
        roles = [m["role"] for m in messages]
        if ("user", "user") in pairwise(roles):
            raise ModelError("two users")
        if any(len(m.get("tool_call_id", "")) > 9 for m in messages):
            raise ModelError("long ids")
        return " ".join(roles) + f" {sum(len(m.get('tool_calls', ())) for m in messages)}"

    made = [{**m, "content": m["content"] or ""} for m in conversation("uuCtt")]
    assert render_history(made, render) == "user assistant tool tool 2"
    assert render_history(made, lambda messages: str(len(messages))) == "5"
    with pytest.raises(ModelError, match="never"):
        render_history(made, _refuse)


def _refuse(messages: list[Message]) -> str:
    raise ModelError("never")


@pytest.mark.parametrize("repair", REPAIRS)
def test_repairs_change_nothing_twice(repair: Any) -> None:
    for shape in SHAPES:
        once = repair([{**m, "content": m["content"] or ""} for m in conversation(shape)])
        assert repair(once) == once


def test_earlier_calls_are_texts_for_a_template_without_calls() -> None:
    """Also in a request that gives no tools."""
    source = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
    prompt = build_format(ChatTemplate(source), conversation("uctu", "{cut")).prompt
    call = json.dumps({"name": "f", "arguments": {RAW: "{cut"}})
    assert f"assistant:<tool_call>\n{call}\n</tool_call>;" in prompt and "MESSAGE2X" in prompt
