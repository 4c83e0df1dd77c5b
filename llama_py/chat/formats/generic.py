"""Tools for templates without tool calls: the system prompt describes them, and calls are JSON
between tags, a format that many models were trained with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llama_py.chat.formats.marks import Marks
from llama_py.chat.history import as_text
from llama_py.chat.messages import Message, complete_message, content_text

MARKS = Marks(calls="json", each_call=("<tool_call>\n", "</tool_call>"))
INTRODUCTION = """You may call functions to answer. These are there, each as JSON:
{tools}

To call one, write its name and its arguments as JSON between tags:
<tool_call>
{{"name": "the function's name", "arguments": {{"the argument's name": "its value"}}}}
</tool_call>"""


def describe_tools(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> list[Message]:
    """Return the messages with a description of the tools first; calls and results become text."""
    found = [as_text(complete_message(message)) for message in messages]
    if not tools:
        return found
    text = INTRODUCTION.format(tools="\n".join(map(_dump_tool, tools)))
    if found and found[0]["role"] in ("system", "developer"):
        before = content_text(found[0])
        found[0] = {**found[0], "content": f"{before}\n\n{text}" if before else text}
        return found
    return [{"role": "system", "content": text}, *found]


def _dump_tool(tool: Mapping[str, Any]) -> str:
    return json.dumps(tool["function"], ensure_ascii=False)
