"""Repairs of conversations that the API allows but a template refuses or cuts.

Examples are system messages in the middle, two messages of one role in sequence, and several calls
in a message: templates may raise errors, or drop a message. If the template accepts a conversation,
it is unchanged, and its prompt equals llama.cpp's. Otherwise, repairs are tried in order; a repair
that lets the template get further is preserved.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from ggml_py.errors import ModelError
from llama_py.chat.messages import Message, content_text, is_of_calls, parse_arguments, parse_object

Render = Callable[[list[Message]], str]
Repair = Callable[[list[Message]], list[Message]]

SYSTEM = ("system", "developer")
ID_LENGTH = 9  # characters of ids in Mistral's calls


def render_history(messages: list[Message], render: Render) -> str:
    """Return the prompt for messages, repaired if the template refuses them.

    Raises the ModelError of the unchanged messages if no repair helps.
    """
    text, refused = _attempt(messages, render)
    if refused is None:
        return text
    repaired = _repair(messages, refused, render)
    if not (repaired or text):
        raise refused
    return repaired or text


def _repair(messages: list[Message], refused: ModelError, render: Render) -> str:
    """Return the first prompt that the template renders, or "".

    A repair that changes the error is preserved. If no other repair remains, they are combined.
    """
    left, kept = list(REPAIRS), set[Repair]()
    combined = False
    while left or not combined:
        if not left:
            left, combined = list(REPAIRS), True
        repair = left.pop(0)
        candidate = repair(messages)
        if candidate == messages:
            continue
        text, error = _attempt(candidate, render)
        if error is None:
            return text
        if combined:
            messages = candidate
        elif str(error) != str(refused):
            messages, refused = candidate, error
            kept.add(repair)
            left = [one for one in REPAIRS if one not in kept]
    return ""


def _attempt(messages: list[Message], render: Render) -> tuple[str, ModelError | None]:
    try:
        text = render(messages)
        if _drops_message(messages, render):
            return text, ModelError(
                "chat template: it omits a message of the conversation; use another template"
            )
        return text, None
    except ModelError as e:
        return "", e


def _drops_message(messages: list[Message], render: Render) -> bool:
    """Return True if a system message or a result is not in the prompt.

    Checks only conversations with a system message in the middle, without a user message, or
    with a result that does not follow its call.
    """
    places = [i for i, message in enumerate(messages) if message["role"] in SYSTEM]
    has_user = any(message["role"] == "user" for message in messages)
    apart = [
        i
        for i, m in enumerate(messages)
        if m["role"] == "tool"
        and not _is_behind(messages[:i])
        and any(map(is_of_calls, messages[:i]))
    ]
    if places in ([], [0]) and has_user and not apart:
        return False
    marks = {i: f"MESSAGE_AT_{i}_" for i in (*places, *apart)}
    text = render([{**m, "content": marks.get(i, m["content"])} for i, m in enumerate(messages)])
    return any(mark not in text for mark in marks.values())


def _is_behind(messages: list[Message]) -> bool:
    """Return True if a result may follow: these end with a call or a result."""
    return bool(messages) and is_of_calls(messages[-1])


def gather_results(messages: list[Message]) -> list[Message]:
    """Move messages between calls and their results after the results."""
    found: list[Message] = []
    rest = list(messages)
    while rest:
        found.append(rest.pop(0))
        if not found[-1].get("tool_calls"):
            continue
        end = next((i for i, m in enumerate(rest) if m["role"] == "assistant"), len(rest))
        run, rest = rest[:end], rest[end:]
        found += sorted(run, key=lambda message: message["role"] != "tool")
    return found


def place_system(messages: list[Message]) -> list[Message]:
    """Join the first system messages; later system messages become user messages."""
    n = next((i for i, m in enumerate(messages) if m["role"] not in SYSTEM), len(messages))
    found = messages[:n]
    if n > 1:
        found = [{**found[0], "content": "\n\n".join(map(content_text, found))}]
    for message in messages[n:]:
        found.append({**message, "role": "user"} if message["role"] in SYSTEM else message)
    return gather_results(found)


def tell_lone_results(messages: list[Message]) -> list[Message]:
    """Turn results without a call before them into user messages."""
    found: list[Message] = []
    for message in messages:
        lone = message["role"] == "tool" and not _is_behind(found)
        found.append(as_text(message) if lone else message)
    return found


def split_calls(messages: list[Message]) -> list[Message]:
    """Give each call a message, followed by its result."""
    found, rest = [], list(messages)
    while rest:
        message = rest.pop(0)
        calls = message.get("tool_calls", [])
        if len(calls) < 2:
            found.append(message)
            continue
        results = []
        while rest and rest[0]["role"] == "tool":
            results.append(rest.pop(0))
        for call in calls:
            found.append({**message, "tool_calls": [call]})
            its = [r for r in results if r.get("tool_call_id") == call.get("id")] or results[:1]
            found += its
            results = [r for r in results if r not in its]
            message = {"role": "assistant", "content": ""}
        found += results
    return found


def shorten_ids(messages: list[Message]) -> list[Message]:
    """Set ids of nine letters and digits for calls and their results, like Mistral's templates."""
    found: list[Message] = []
    ids: list[str] = []  # ids of the last calls
    for n, message in enumerate(messages):
        if calls := message.get("tool_calls"):
            ids = [_shorten(call.get("id") or f"{n}.{i}") for i, call in enumerate(calls)]
            calls = [{**call, "id": id} for call, id in zip(calls, ids, strict=True)]
            message = {**message, "tool_calls": calls}
        elif message["role"] == "tool":
            id = message.get("tool_call_id")
            id = _shorten(id) if id else ids.pop(0) if ids else _shorten(str(n))
            message = {**message, "tool_call_id": id}
        found.append(message)
    return found


def _shorten(id: str) -> str:
    if len(id) == ID_LENGTH and id.isalnum():
        return id
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:ID_LENGTH]


def begin_with_user(messages: list[Message]) -> list[Message]:
    """Add a user message before a leading response; a lone system message becomes a user's."""
    n = next((i for i, m in enumerate(messages) if m["role"] not in SYSTEM), len(messages))
    if n < len(messages) and messages[n]["role"] == "user":
        return messages
    if n and n == len(messages):
        return [*messages[:-1], {**messages[-1], "role": "user"}]
    return [*messages[:n], {"role": "user", "content": ""}, *messages[n:]]


def alternate(messages: list[Message]) -> list[Message]:
    """Join consecutive messages of one role, or insert an empty message between calls."""
    found: list[Message] = []
    for message in messages:
        last = found[-1] if found else {"role": ""}
        of_calls = is_of_calls(message) or is_of_calls(last)
        if message["role"] == last["role"] != "tool" and not of_calls:
            found[-1] = _join(last, message)
            continue
        if message["role"] == "user" and is_of_calls(last):
            found.append({"role": "assistant", "content": ""})
        elif message.get("tool_calls") and last["role"] == "assistant" and not is_of_calls(last):
            found.append({"role": "user", "content": ""})
        found.append(message)
    return found


def _join(first: Message, second: Message) -> Message:
    found = {**first, **second}
    contents = [m["content"] for m in (first, second) if m.get("content")]
    if all(isinstance(content, str) for content in contents):
        found["content"] = "\n\n".join(contents)
    else:
        parts = [[{"type": "text", "text": c}] if isinstance(c, str) else c for c in contents]
        found["content"] = [part for some in parts for part in some]
    return found


def tell_calls(messages: list[Message]) -> list[Message]:
    """Write calls and their results as text of alternating assistant and user messages."""
    told = [as_text(message) for message in messages]
    return messages if told == messages else alternate(told)


def as_text(message: Message) -> Message:
    """Return a message with its calls as text; a result becomes a user message."""
    if message["role"] == "tool":
        text = f"<tool_response>\n{content_text(message)}\n</tool_response>"
        return {"role": "user", "content": text}
    calls = message.get("tool_calls")
    if not calls:
        return message
    texts = [text for text in (content_text(message),) if text]
    texts += [f"<tool_call>\n{_call_text(call['function'])}\n</tool_call>" for call in calls]
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": "\n".join(texts)}


def _call_text(function: dict[str, Any]) -> str:
    name = json.dumps(function["name"], ensure_ascii=False)
    given = function["arguments"]
    if parse_object(given) is None:
        given = json.dumps(parse_arguments(given), ensure_ascii=False)
    return f'{{"name": {name}, "arguments": {given}}}'


REPAIRS = (
    gather_results,
    place_system,
    tell_lone_results,
    split_calls,
    shorten_ids,
    begin_with_user,
    alternate,
    tell_calls,
)
