"""Conversion of OpenAI's responses requests to chat completions
(server-chat.cpp:server_chat_convert_responses_to_chatcmpl)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from llama_py_server.schema import chat
from llama_py_server.schema.constraints import select
from llama_py_server.schema.fields import Fields
from llama_py_server.schema.json_schemas import (
    INTEGER,
    OBJECT,
    OBJECTS,
    REFUSED,
    STRING,
    STRINGS,
    constant,
    either,
)
from llama_py_server.wire.body import (
    Body,
    check_length,
    check_unsupported,
    inner,
    objects,
    text,
    value,
)
from llama_py_server.wire.errors import HTTPError, invalid

log = logging.getLogger("llama_py")

_UNSUPPORTED = ("background", "context_management", "conversation", "image", "moderation", "prompt")
_LOGPROBS = "message.output_text.logprobs"  # value of `include`
_REPEATED = (
    "metadata",
    "tool_choice",
    "tools",
    "max_output_tokens",
    "max_tool_calls",
    "reasoning",
    "text",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "top_logprobs",
)  # fields of each response; `instructions` is also a part of the prompt
MAX_REPEATED = 1 << 20  # characters of these fields as JSON
_GONE = ("input", "instructions", "tools", "max_output_tokens", "reasoning", "text")

# All fields of a request; fields of chats remain in the converted body.
FIELDS: Fields = {
    **{name: one for name, one in chat.FIELDS.items() if name != "messages"},
    **dict.fromkeys(_UNSUPPORTED, REFUSED),
    "input": either(STRING, OBJECTS), "instructions": STRING, "tools": OBJECTS,
    "max_output_tokens": INTEGER, "max_tool_calls": INTEGER, "text": OBJECT, "reasoning": OBJECT,
    "include": STRINGS, "metadata": OBJECT, "user": STRING, "prompt_cache_key": STRING,
    "safety_identifier": STRING, "previous_response_id": constant(""),
}  # fmt: skip


def chat_body(body: Body) -> Body:
    """Return a body for /v1/chat/completions; HTTPError if the request cannot be converted."""
    body = select(body, FIELDS)
    if "input" not in body:
        raise invalid("'input' is required")
    if text(body, "previous_response_id"):
        raise invalid(
            "'previous_response_id' is not supported, because responses are not stored; send the "
            "whole input"
        )
    check_unsupported(body, _UNSUPPORTED)
    n = len(json.dumps([body.get(name) for name in _REPEATED]))
    if n > MAX_REPEATED:
        why = f"{', '.join(_REPEATED)} have {n} characters in total, which a response repeats"
        raise HTTPError("request_too_large", f"{why}; send at most {MAX_REPEATED}")
    found = {key: v for key, v in body.items() if key not in _GONE}
    messages: list[Body] = []
    if body.get("instructions") is not None:
        messages.append({"role": "system", "content": text(body, "instructions")})
    given = body["input"]
    if isinstance(given, str):
        messages.append({"role": "user", "content": given})
    elif isinstance(given, list):
        check_length("input", len(given))
        for item in objects(body, "input"):
            _add(messages, item)
    else:
        raise invalid("'input' must be a string or array of objects")
    found["messages"] = messages
    if body.get("tools") is not None:
        found |= _tools(objects(body, "tools"))
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "function" and "name" in choice:
        found["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}
    if body.get("max_output_tokens") is not None:
        found["max_tokens"] = body["max_output_tokens"]
    effort = inner(body, "reasoning").get("effort")
    if effort is not None:
        found["reasoning_effort"] = effort
    if found.get("top_logprobs") is not None or _LOGPROBS in _parse_include(body):
        found["logprobs"] = True
    return found | _format(inner(body, "text"))


def _parse_include(body: Body) -> list[Any]:
    none: list[Any] = []
    return value(body, "include", none)


def _format(given: Body) -> Body:
    """Convert `text.format` to response_format."""
    form = inner(given, "format")
    if form.get("type") == "json_schema":
        return {"response_format": {"type": "json_schema", "json_schema": form}}
    return {"response_format": form} if form else {}


def _tools(given: list[Body]) -> Body:
    found = []
    for tool in given:
        if tool.get("type") != "function":
            log.warning("tools of type %r are ignored", tool.get("type"))
            continue
        function = {key: v for key, v in tool.items() if key != "type"}
        found.append({"type": "function", "function": {"strict": True, **function}})
    return {"tools": found} if found else {}


def _add(messages: list[Body], item: Body) -> None:
    """Append an item of the input: a message, a call, its result, or reasoning."""
    role, kind = item.get("role"), item.get("type")
    if role in ("user", "system", "developer") and _is_content(item):
        messages.append({"role": role, "content": _parts(item, _INPUT)})
    elif role == "assistant" and _is_content(item):
        said = _last_assistant_message(messages)
        content = _parts(item, _OUTPUT)
        said["content"] = [*(said.get("content") or []), *content]
    elif kind in _CALLS and isinstance(item.get("name"), str):
        function = {"name": item["name"], "arguments": item.get(_CALLS[kind])}
        call = {"id": text(item, "call_id"), "type": "function", "function": function}
        _last_assistant_message(messages).setdefault("tool_calls", []).append(call)
    elif kind in _RESULTS and isinstance(item.get("call_id"), str):
        messages.append(_result(item))
    elif kind == "reasoning":
        _think(messages, item)
    else:
        raise invalid(
            f"Cannot determine type of 'item': {kind or role!r}; send messages, function calls, "
            "their outputs and reasoning"
        )


_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = ("function_call_output", "custom_tool_call_output")


def _is_content(item: Body) -> bool:
    return isinstance(item.get("content"), str | list)


def _last_assistant_message(messages: list[Body]) -> Body:
    """Return the assistant's message to continue, or a new one after another role's."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": []})
    return messages[-1]


def _think(messages: list[Body], item: Body) -> None:
    content = objects(item, "content") or objects(item, "summary")
    if content:
        said = _last_assistant_message(messages)
        thoughts = "".join(_part(part, _THOUGHTS)["text"] for part in content)
        said["reasoning_content"] = said.get("reasoning_content", "") + thoughts


def _result(item: Body) -> Body:
    output = item.get("output")
    if isinstance(output, list):
        output = [_part(one, _INPUT) for one in objects(item, "output")]
    elif not isinstance(output, str):
        raise invalid("'output' of a tool call must be a string or an array")
    return {"role": "tool", "tool_call_id": item["call_id"], "content": output}


def _parts(item: Body, kinds: Kinds) -> list[Body]:
    content = item["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_part(part, kinds) for part in objects(item, "content")]


def _part(part: Body, kinds: Kinds) -> Body:
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in kinds:
        wanted = "', '".join(kinds)
        raise invalid(f"'type' must be one of '{wanted}', got {kind!r}")
    return kinds[kind](part)


def _text(part: Body) -> Body:
    if not isinstance(part.get("text"), str):
        raise invalid(f"'{part['type']}' requires 'text'")
    return {"type": "text", "text": part["text"]}


def _image(part: Body) -> Body:
    if not isinstance(part.get("image_url"), str):
        raise invalid("'image_url' of 'input_image' is required; 'file_id' is not supported")
    return {"type": "image_url", "image_url": {"url": part["image_url"]}}


def _refusal(part: Body) -> Body:
    if not isinstance(part.get("refusal"), str):
        raise invalid("'Refusal' requires 'refusal'")
    return {"type": "text", "text": part["refusal"]}


def _no_file(part: Body) -> Any:
    raise invalid("'input_file' is not supported; send its text as 'input_text'")


Kinds = dict[str, Callable[[Body], Body]]
_INPUT: Kinds = {"input_text": _text, "input_image": _image, "input_file": _no_file}
_THOUGHTS: Kinds = {"reasoning_text": _text, "summary_text": _text}
_OUTPUT: Kinds = {"output_text": _text, "input_text": _text, "refusal": _refusal}
