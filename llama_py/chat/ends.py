"""Where an answer ends, if the template alone says so."""

from __future__ import annotations

from typing import Protocol

from ggml_py.errors import ModelError
from llama_py.chat.template import ChatTemplate

ASKED, ANSWERED, NEXT = "U_FIRST_MSG", "A_FIRST_MSG", "U_NEXT_MSG"


class TextTokenizer(Protocol):
    """What is needed of one."""

    def tokenize(
        self, text: str, add_special: bool = True, parse_special: bool = True
    ) -> list[int]: ...


def turn_end(template: ChatTemplate, tokenizer: TextTokenizer) -> str:
    """The text between an answer and the next message; a model that writes it has answered.

    Empty for templates that have a special token there, which ends an answer by itself, and for
    those that put nothing between.
    """
    roles = ("user", "assistant", "user")
    messages = [
        {"role": role, "content": text}
        for role, text in zip(roles, (ASKED, ANSWERED, NEXT), strict=True)
    ]
    try:
        text = template.render(messages, add_generation_prompt=False)
    except ModelError:  # it takes no such conversation
        return ""
    _, answered, rest = text.rpartition(ANSWERED)
    end, following, _ = rest.partition(NEXT)
    if not answered or not following:
        return ""
    plain = tokenizer.tokenize(end, False, False)
    return end if plain == tokenizer.tokenize(end, False, True) else ""
