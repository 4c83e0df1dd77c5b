"""Small conversations of unusual words, and their renderings by a template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ggml_py.errors import ModelError
from llama_py.chat.formats.analysis.diff import Diff, diff
from llama_py.chat.messages import Message
from llama_py.chat.template import ChatTemplate

NAME, OTHER_NAME = "FFF_FIRST_FUN_F", "SSS_SECOND_FUN_S"
KEY, OTHER_KEY = "AA_ARG_FST_AA", "BB_ARG_SND_BB"
VALUE, OTHER_VALUE = "XXXX", "YYYY"
ID, SECOND_ID, OTHER_ID = "call00001", "call00002", "call99999"
SAID = "A_ASST_MSG I can help END_A"
THOUGHT = "REASON_PART I am thinking END_R"

USER: Message = {"role": "user", "content": "U_USER_MSG Hello END_U"}
PARAMETERS = {
    "type": "object",
    "required": [],
    "properties": {
        KEY: {"type": "string", "description": "First argument"},
        OTHER_KEY: {"type": "string", "description": "Second argument"},
    },
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Test function {what}",
            "parameters": PARAMETERS,
        },
    }
    for name, what in ((NAME, "foo"), (OTHER_NAME, "bar"))
]


def content_message(text: str | None = SAID, thought: str = "", *calls: Message) -> Message:
    """Return an assistant message with content, reasoning and calls."""
    found: Message = {"role": "assistant", "content": text}
    if thought:
        found["reasoning_content"] = thought
    return found | ({"tool_calls": [*calls]} if calls else {})


def call_message(*calls: Message) -> Message:
    """Return an assistant message of calls only."""
    return content_message("", "", *calls)


def call(arguments: dict[str, str], name: str = NAME, id: str = ID) -> Message:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


BOTH = {KEY: VALUE, OTHER_KEY: OTHER_VALUE}
FIRST = call(BOTH)
SECOND = call(BOTH, OTHER_NAME, SECOND_ID)


@dataclass(frozen=True)
class Comparison:
    """Two texts and their difference."""

    a: str
    b: str

    @cached_property
    def diff(self) -> Diff:
        return diff(self.a, self.b)


class Trials:
    """Renderings of unchanged messages by a template."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self.caps = template.caps

    def text(
        self, messages: Sequence[Message], ask: bool = False, think: bool = True, tools: bool = True
    ) -> str | None:
        """Render messages; None if the template refuses them."""
        more: dict[str, Any] = {"tools": TOOLS} if tools else {}
        if ask:
            more["add_generation_prompt"] = True
        try:
            return self._template.render_plain(messages, enable_thinking=think, **more)
        except ModelError:
            return None

    def answers(self, a: Message, b: Message, tools: bool = True) -> Comparison | None:
        """Compare conversations with these responses at the end; None if either is refused."""
        texts = [self.text([USER, answer], tools=tools) for answer in (a, b)]
        return None if texts[0] is None or texts[1] is None else Comparison(texts[0], texts[1])

    def compare_prompts(self) -> Comparison | None:
        """Compare prompts for a response without and with reasoning."""
        texts = [self.text([USER], True, think, False) for think in (False, True)]
        return None if texts[0] is None or texts[1] is None else Comparison(texts[0], texts[1])
