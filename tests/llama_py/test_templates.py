"""Every chat template of llama.cpp's collection gives the text that llama-server makes with it."""

from __future__ import annotations

import datetime
import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ggml_py.errors import ModelError
from llama_py.chat import ChatTemplate, sandbox
from llama_py.chat.named import named_templates, template_source

FOLDER = Path(__file__).parents[1] / "data" / "chat"
DATA, NAMES = (
    json.loads(lzma.decompress((FOLDER / f"{name}.json.xz").read_bytes()))
    for name in ("templates", "names")
)
RECORDED = DATA["templates"]
CAPS = {
    "string_content": "supports_string_content",
    "typed_content": "supports_typed_content",
    "system_role": "supports_system_role",
    "object_arguments": "supports_object_arguments",
}
# A list that is written as it is, `{{ [1, 2] }}`: llama.cpp writes 12, Jinja (and we) [1, 2].
OURS = {("openbmb-MiniCPM5-1B", "dictionary arguments"): ("46.957.0", "[46.95, 7.0]")}
THINK = ("<think>", "</think>")
CHANNELS = ("<|channel|>analysis<|message|>", "<|end|>")
TAGS = {
    "Qwen-Qwen3-0.6B": THINK,
    "HuggingFaceTB-SmolLM3-3B": THINK,
    "Qwen-Qwen2.5-7B-Instruct": None,
    "deepseek-ai-DeepSeek-V3.1": THINK,
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": THINK,
    "ByteDance-Seed-OSS": ("<seed:think>", "</seed:think>"),
    "google-gemma-2-2b-it": None,
    "openai-gpt-oss-120b": CHANNELS,
    "GLM-4.6": THINK,
    "Apertus-8B-Instruct": None,
    "mistralai-Ministral-3-14B-Reasoning-2512": ("[THINK]", "[/THINK]"),
    "Qwen3.5-4B": THINK,
}


@cache
def template(name: str) -> ChatTemplate:
    return ChatTemplate(RECORDED[name]["source"], DATA["bos"], DATA["eos"])


@pytest.fixture(autouse=True)
def day(monkeypatch: pytest.MonkeyPatch) -> None:
    """That on which the server was asked."""
    recorded = datetime.datetime.fromisoformat(DATA["day"])
    monkeypatch.setattr(sandbox, "now", lambda: recorded)


def render(name: str, conversation: dict[str, Any]) -> str:
    body = dict(conversation)
    messages, extra = body.pop("messages"), body.pop("chat_template_kwargs", {})
    return template(name).render(messages, **body, **extra)


def test_all_are_there() -> None:
    assert len(RECORDED) == 70 and len(DATA["conversations"]) == 11


@pytest.mark.parametrize("name", RECORDED)
def test_texts_are_those_of_the_server(name: str) -> None:
    for what, conversation in DATA["conversations"].items():
        expected = RECORDED[name]["prompts"][what]
        before = json.dumps(conversation)
        if isinstance(expected, str):
            theirs, ours = OURS.get((name, what), ("", ""))
            assert render(name, conversation) == expected.replace(theirs, ours), what
        else:  # refused there; repaired here
            said = [(m["content"] or "").strip() for m in conversation["messages"]]
            text = render(name, conversation)
            assert [one for one in said if one not in text] == []
        assert json.dumps(conversation) == before, f"{what}: the caller's messages were changed"


@pytest.mark.parametrize("name", RECORDED)
def test_what_a_template_takes_is_found(name: str) -> None:
    caps = template(name).caps
    assert {theirs: getattr(caps, ours) for ours, theirs in CAPS.items()} == {
        theirs: RECORDED[name]["caps"][theirs] for theirs in CAPS.values()
    }


def test_names_are_those_of_llama_cpp() -> None:
    assert [*named_templates()] == sorted(NAMES["prompts"]) and len(named_templates()) == 54


@pytest.mark.parametrize("name", NAMES["prompts"])
def test_texts_by_name_are_those_of_llama_cpp(name: str) -> None:
    """But for system messages amid a conversation, which some drop there."""
    by_name = ChatTemplate(template_source(name))
    expected = iter(NAMES["prompts"][name])
    for conversation in NAMES["conversations"]:
        amid = [m["content"].strip() for m in conversation[1:] if m["role"] == "system"]
        for add in (True, False):
            theirs, ours = next(expected), by_name.render(conversation, add)
            assert ours == theirs or any(ours.count(t) > theirs.count(t) for t in amid)


def test_a_name_that_is_none() -> None:
    assert template_source("{{ messages }}") == "{{ messages }}"
    assert template_source("always the same words") == "always the same words"
    with pytest.raises(ModelError, match=r"unknown chat template .xyz.; known: bailing, .*zephyr"):
        template_source("xyz")
    with pytest.raises(ModelError, match=r"unknown chat template .lama3.; did you mean llama3 or "):
        template_source("lama3")


@pytest.mark.parametrize("name", TAGS)
def test_tags_of_thoughts_are_found(name: str) -> None:
    tags = template(name).thinking
    assert (tags and (tags.start, tags.ends[0])) == TAGS[name]
