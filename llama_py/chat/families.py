"""Template families with special message formats, recognized by marks in their text.

common/parsers/*.cpp and chat.cpp:common_chat_try_specialized_template; the first that fits counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from llama_py.chat.messages import Message, content_parts, content_text, is_of_calls
from llama_py.support.warn_once import warn_once

Adjust = Callable[[list[Message]], list[Message]]

GO_MARK = "{# Go template #}"  # begins the translation of a Go template

LANGUAGES = ("source_lang_code", "target_lang_code")  # variables of templates that translate
LANGUAGE = "en-GB"  # default of both

# Refusals that llama.cpp removes from templates: reasoning, or no content, in an earlier response.
PATCHES = (
    (
        "<|channel|>",
        '{%- if "<|channel|>analysis<|message|>" in message.content or'
        ' "<|channel|>final<|message|>" in message.content %}',
    ),
    (
        "[TOOL_CALLS]",
        "{%- if (message['content'] is none or message['content'] == '' or"
        " message['content']|length == 0) and (message['tool_calls'] is not defined or"
        " message['tool_calls'] is none or message['tool_calls']|length == 0) %}",
    ),
)


def patch_template(source: str) -> str:
    """Return the template without known refusals."""
    for mark, condition in PATCHES:
        if mark in source:
            source = source.replace(condition, "{%- if false %}")
    return source


def has_channels(source: str) -> bool:
    """Return True if responses use channels: such templates know the role `developer`."""
    return "<|channel|>" in source


def needs_trimming(source: str) -> bool:
    """Return True if spaces around contents would confuse the model."""
    return "You have access to the following functions in JSONSchema format" in source


def find_adjustment(source: str, variables: Mapping[str, Any]) -> Adjust | None:
    """Return the adjustment of messages for a template and its variables, or None."""
    for has, lacks, adjust in FAMILIES:
        if all(mark in source for mark in has) and not any(mark in source for mark in lacks):
            return adjust
    return partial(with_languages, variables=variables) if translates(source) else None


def add_thoughts(source: str, messages: Iterable[Message]) -> None:
    """Add empty reasoning to responses without it, if the template requires it."""
    if not all(mark in source for mark in ("<|ifm|im_start|>", "<ifm|tool_calls>")):
        return
    for message in messages:
        if message["role"] == "assistant":
            message.setdefault("reasoning_content", "")


def translates(source: str) -> bool:
    """Return True if the template asks for a translation: messages have language codes."""
    return all(f"[{key}]" in source for key in LANGUAGES)


def warn_of_languages(
    source: str, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]
) -> None:
    """Log a warning if a message to translate has no language codes."""
    users = [m for m in messages if m.get("role") == "user"] if translates(source) else []
    missing = [
        key
        for key in LANGUAGES
        if key not in variables and any(_language(m, key) is None for m in users)
    ]
    if missing:
        warn_once(
            f"{' and '.join(missing)} not set, so {LANGUAGE} is used; set the languages of a "
            "translation as variables of the chat template (--chat-template-kwargs)"
        )


def _language(message: Mapping[str, Any], key: str) -> str | None:
    """Return the language code that a part of a message has, or None."""
    return next((str(part[key]) for part in content_parts(message) if part.get(key)), None)


def with_languages(messages: list[Message], variables: Mapping[str, Any]) -> list[Message]:
    """Return messages with a text to translate as one part with its languages.

    A message's part may have the codes; the template's variables are the default.
    """
    found: list[Message] = []
    for message in messages:
        content: Any = content_text(message)
        if message["role"] == "user":
            codes = {
                key: _language(message, key) or variables.get(key, LANGUAGE) for key in LANGUAGES
            }
            content = [{"type": "text", "text": content, **codes}]
        found.append({**message, "content": content})
    return found


def thoughts_as_parts(messages: list[Message]) -> list[Message]:
    """Return messages with system and assistant contents as lists of parts, reasoning first."""
    found = []
    for message in messages:
        if message["role"] in ("system", "assistant"):
            message = dict(message)
            thoughts = message.pop("reasoning_content", None)
            parts = [{"type": "thinking", "thinking": thoughts}] if thoughts else []
            content = message.get("content", "")
            text = [{"type": "text", "text": content}] if isinstance(content, str) else content
            message["content"] = [*parts, *text]
        found.append(message)
    return found


def thoughts_as_thinking(messages: list[Message]) -> list[Message]:
    """Return messages with reasoning also under the key `thinking`."""
    return [
        {**m, "thinking": m["reasoning_content"]} if "reasoning_content" in m else m
        for m in messages
    ]


def thoughts_or_content(messages: list[Message]) -> list[Message]:
    """Return messages with reasoning under `thinking`, without content if there are tool calls."""
    found = thoughts_as_thinking(messages)
    for message in found:
        if "thinking" in message and message.get("tool_calls"):
            message.pop("content", None)
    return found


def merge_roles(messages: list[Message]) -> list[Message]:
    """Merge consecutive messages of a role, like Ollama (template.go:collate)."""
    found: list[Message] = []
    for message in messages:
        last = found[-1] if found else {"role": ""}
        if message["role"] == last["role"] and not (is_of_calls(message) or is_of_calls(last)):
            text = f"{content_text(last)}\n\n{content_text(message)}"
            found[-1] = {**last, "content": text}
        else:
            found.append(message)
    return found


def results_in_order(messages: list[Message]) -> list[Message]:
    """Return messages with tool results in the order of their calls."""
    found, order, i = list(messages), dict[str, int](), 0
    while i < len(found):
        if found[i].get("tool_calls") and found[i]["role"] == "assistant":
            calls = found[i]["tool_calls"]
            order = {call["id"]: n for n, call in enumerate(calls) if call.get("id")}
        if found[i]["role"] not in ("user", "tool"):
            i += 1
            continue
        end = i
        while end < len(found) and found[end]["role"] in ("user", "tool"):
            end += 1
        places = [k for k in range(i, end) if found[k]["role"] == "tool"]
        results = [found[k] for k in places]
        if order:
            results.sort(key=lambda m: order.get(m.get("tool_call_id", ""), 0))
        for k, result in zip(places, results, strict=True):
            found[k] = result
        i = end
    return found


def responses_with_calls(messages: list[Message]) -> list[Message]:
    """Merge tool calls, their results, and the following response into one message."""
    found, rest = [], list(messages)
    while rest:
        message = rest.pop(0)
        if message["role"] != "assistant" or not message.get("tool_calls"):
            found.append(message)
            continue
        turn = {"role": "assistant", "tool_calls": message["tool_calls"]}
        responses: list[Any] = []
        while rest and rest[0]["role"] == "tool":
            responses.append(_response(rest.pop(0), turn["tool_calls"], len(responses)))
        if responses:
            turn["tool_responses"] = responses
        following = rest[0] if rest and rest[0]["role"] == "assistant" else {}
        if following.get("content") and not following.get("tool_calls"):
            turn["content"] = rest.pop(0)["content"]
        if "reasoning_content" in message:
            turn["reasoning_content"] = message["reasoning_content"]
        found.append(turn)
    return found


def _response(message: Message, calls: list[Any], i: int) -> Message:
    """Return a tool's result, parsed if it is JSON, with the name of its call."""
    name = calls[i]["function"]["name"] if i < len(calls) else ""
    response: Any = content_text(message)
    with suppress(ValueError, RecursionError):
        response = json.loads(response)
    return {"name": name or message.get("tool_call_id", ""), "response": response}


FAMILIES: tuple[tuple[tuple[str, ...], tuple[str, ...], Adjust], ...] = (
    ((GO_MARK,), (), merge_roles),
    (("[SYSTEM_PROMPT]", "[TOOL_CALLS]", "[ARGS]"), ("[CALL_ID]",), thoughts_as_parts),
    (("<|channel|>",), (), thoughts_or_content),
    (("<|tool_list_start|>", "<|tool_list_end|>"), (), thoughts_as_thinking),
    (("List of tools: [",), ("<|tool_list_start|>",), thoughts_as_thinking),
    (("dsml_token", "DSML", "tool_calls"), ("function_calls",), results_in_order),
    (("'<|tool_call>call:'",), ("{#- OpenAI Chat Completions:",), responses_with_calls),
)
