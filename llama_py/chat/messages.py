"""Messages and tools whole, in the form of the OpenAI API, and as a template can take them.

chat.cpp:common_chat_msgs_parse_oaicompat, to_json_oaicompat, common_chat_templates_apply_jinja.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ggml_py.errors import ModelError

if TYPE_CHECKING:
    from llama_py.chat.caps import Caps

Message = dict[str, Any]

IMAGE = "image_url"  # the type of a part of a content that is an image


def parts_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The parts of a message's content; none, if it is a text."""
    content = message.get("content")
    if not isinstance(content, list | tuple):
        return []
    return [part for part in content if isinstance(part, Mapping)]


def has_images(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there is an image in them."""
    return any(part.get("type") == IMAGE for m in messages for part in parts_of(m))


def copied(value: Any) -> Any:
    """Lists and dictionaries that a template may change."""
    if isinstance(value, Mapping):
        return {key: copied(v) for key, v in value.items()}
    return [copied(v) for v in value] if isinstance(value, list | tuple) else value


def whole(message: Mapping[str, Any]) -> Message:
    """A message with a content, its calls with arguments as JSON text. What else it has stays."""
    if "role" not in message:
        raise ModelError(f"a message needs a role, as {{'role': 'user', ...}}; got {message}")
    content, calls = message.get("content"), message.get("tool_calls")
    if content is not None and not isinstance(content, str | list | tuple):
        raise ModelError(f"a message's content is a text or a list of parts, got {content!r}")
    found: Message = {"role": message["role"], "content": copied(content) or ""}
    for key in ("reasoning_content", "name", "tool_call_id"):
        if message.get(key):
            found[key] = message[key]
    if calls:
        found["tool_calls"] = [_call(call) for call in calls]
    known = {*found, "tool_calls", "reasoning_content", "name", "tool_call_id"}
    return found | {key: copied(v) for key, v in message.items() if key not in known}


def _call(call: Mapping[str, Any]) -> Message:
    function = call.get("function", call)
    if "name" not in function:
        raise ModelError(f"a tool call needs a function with a name, got {call}")
    arguments = function.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    found = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
    return found | ({"id": call["id"]} if call.get("id") else {})


def whole_tool(tool: Mapping[str, Any]) -> Message:
    """A tool with a description and parameters, in the order in which templates are shown them."""
    function = tool.get("function", tool)
    if "name" not in function:
        raise ModelError(f"a tool needs a function with a name, got {tool}")
    return {
        "type": "function",
        "function": {
            "name": function["name"],
            "description": function.get("description", ""),
            "parameters": copied(function.get("parameters", {})),
        },
    }


def fitted(messages: Sequence[Message], caps: Caps, developer: bool) -> list[Message]:
    """The messages as the template can take them; `developer`: whether it knows that role."""
    found = [with_content(message, caps) for message in messages]
    if not developer:
        for message in found:
            if message["role"] == "developer":
                message["role"] = "system"
    if not caps.system_role and found and found[0]["role"] == "system":
        found = _merged(found)
    if caps.object_arguments:
        for message in found:
            for call in message.get("tool_calls", ()):
                call["function"]["arguments"] = _parsed(call["function"]["arguments"])
    return found


def with_content(message: Message, caps: Caps) -> Message:
    """Its content as a text or as a list of parts, where the template takes but one of them."""
    content = message.get("content")
    if isinstance(content, str) and caps.typed_content and not caps.string_content:
        return {**message, "content": [{"type": "text", "text": content}]}
    if isinstance(content, list) and caps.string_content and not caps.typed_content:
        texts = (part.get("text", "") for part in content if part.get("type") == "text")
        return {**message, "content": "\n".join(texts)}
    return message


def _merged(messages: list[Message]) -> list[Message]:
    """What the system says at the head of the message after it."""
    system, *rest = messages
    if rest:
        said = f"{text_of(system)}\n{text_of(rest[0])}"
        rest[0] = {**rest[0], "content": said}
    return rest


def text_of(message: Message) -> str:
    """Its content as one text."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def _parsed(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except json.JSONDecodeError as e:
        raise ModelError(f"the arguments of a tool call are no JSON ({e}): {arguments}") from None
