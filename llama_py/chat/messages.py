"""Completion of messages and tools in the form of the OpenAI API, and their adaptation to a
template.

chat.cpp:common_chat_msgs_parse_oaicompat, to_json_oaicompat, common_chat_templates_apply_jinja.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ggml_py.errors import ModelError
from llama_py.chat.caps import Caps, message_category

Message = dict[str, Any]

IMAGE = "image_url"  # type of an image in a content part
RAW = "raw"  # member for call arguments that are not a JSON object


def content_parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the parts of a message's content; empty for a string."""
    content = message.get("content")
    if not isinstance(content, list | tuple):
        return []
    return [part for part in content if isinstance(part, Mapping)]


def has_images(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if a message has an image."""
    return any(part.get("type") == IMAGE for m in messages for part in content_parts(m))


def deep_copy(value: Any) -> Any:
    """Copy lists and dictionaries, so that a template may change them."""
    if isinstance(value, Mapping):
        return {key: deep_copy(v) for key, v in value.items()}
    return [deep_copy(v) for v in value] if isinstance(value, list | tuple) else value


def complete_message(message: Mapping[str, Any]) -> Message:
    """Complete a message: a content, and calls with arguments as JSON text."""
    if "role" not in message:
        raise ModelError(f"a message needs a role, such as {{'role': 'user', ...}}, got {message}")
    content, calls = message.get("content"), message.get("tool_calls")
    parts = content if isinstance(content, list | tuple) else ()
    wrong = content is not None and not isinstance(content, str | list | tuple)
    if wrong or not all(isinstance(part, Mapping) for part in parts):
        raise ModelError(
            f"content of a message must be a string or a list of parts, got {content!r}"
        )
    found: Message = {"role": message["role"], "content": deep_copy(content) or ""}
    for key in ("reasoning_content", "name", "tool_call_id"):
        if message.get(key):
            found[key] = message[key]
    if calls:
        if not isinstance(calls, list | tuple):
            raise ModelError(f"tool_calls of a message must be a list of calls, got {calls!r}")
        found["tool_calls"] = [_call(call) for call in calls]
    known = {*found, "tool_calls", "reasoning_content", "name", "tool_call_id"}
    return found | {key: deep_copy(v) for key, v in message.items() if key not in known}


def _call(call: Mapping[str, Any]) -> Message:
    custom, owner = call.get("custom") if isinstance(call, Mapping) else None, call
    if isinstance(custom, Mapping):  # a call with any text as input
        owner = {"name": custom.get("name"), "arguments": custom.get("input")}
    function = _function(owner, "a tool call")
    arguments = function.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    if arguments.strip() in ("", "null"):
        arguments = "{}"
    found = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
    return found | ({"id": call["id"]} if call.get("id") else {})


def _function(owner: Any, what: str) -> Mapping[str, Any]:
    """Return the function of a tool or of a call, which may be the function itself."""
    function = owner.get("function", owner) if isinstance(owner, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ModelError(f"{what} needs a function with a name, got {owner}")
    return function


def whole_tool(tool: Mapping[str, Any]) -> Message:
    """Complete a tool: a description and parameters, in the order that templates expect."""
    function = _function(tool, "a tool")
    return {
        "type": "function",
        "function": {
            "name": function["name"],
            "description": function.get("description", ""),
            "parameters": deep_copy(function.get("parameters", {})),
        },
    }


def adapt_messages(messages: Sequence[Message], caps: Caps, developer: bool) -> list[Message]:
    """Adapt messages to the template; `developer`: it knows that role."""
    found = [*messages]
    if not developer:
        found = [{**m, "role": "system"} if m["role"] == "developer" else m for m in found]
    if not caps.system_role and found and found[0]["role"] == "system":
        found = _merge_system(found)
    found = [with_content(message, caps) for message in found]
    if caps.object_arguments:
        for message in found:
            for call in message.get("tool_calls", ()):
                call["function"]["arguments"] = parse_arguments(call["function"]["arguments"])
    return found


def with_content(message: Message, caps: Caps) -> Message:
    """Return a message with its content as a string or a list of parts, as the template needs."""
    content = message.get("content")
    texts_only = caps.string_content and not caps.typed_content
    has_text = texts_only or message_category(message) in caps.as_text
    if isinstance(content, str) and caps.typed_content and not (caps.string_content or has_text):
        return {**message, "content": [{"type": "text", "text": content}]}
    if isinstance(content, list) and has_text:
        others = [part.get("type") for part in content if not isinstance(part.get("text"), str)]
        if others:
            raise ModelError(
                f"unknown message part {others[0]!r}; the chat template takes text only: use "
                "type 'text'"
            )
        return {**message, "content": content_text(message)}
    return message


def is_of_calls(message: Mapping[str, Any]) -> bool:
    """Return True if a message has calls of tools or the result of one."""
    return message_category(message) in ("calls", "tool")


def _merge_system(messages: list[Message]) -> list[Message]:
    """Put the system message at the head of the user's message after it."""
    system, *rest = messages
    if not rest or rest[0]["role"] != "user":
        return [{**system, "role": "user"}, *rest]
    said = f"{content_text(system)}\n{content_text(rest[0])}"
    return [{**rest[0], "content": said}, *rest[1:]]


def content_text(message: Message) -> str:
    """Return the content of a message as one text."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def parse_object(arguments: str) -> dict[str, Any] | None:
    """Return the object of a JSON text; None if it is anything else."""
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def parse_arguments(arguments: str) -> dict[str, Any]:
    """Return the arguments of an earlier call as an object.

    Invalid text of an interrupted or mistaken model becomes the member RAW.
    """
    found = parse_object(arguments)
    return {RAW: arguments} if found is None else found
