"""End of a response, if only the template defines it."""

from __future__ import annotations

from typing import Protocol

from llama_py.chat.template import ChatTemplate


class TextTokenizer(Protocol):
    """Interface of the tokenizer that is needed here."""

    def tokenize(
        self, text: str, add_special: bool = True, parse_special: bool = True
    ) -> list[int]: ...


def turn_end(template: ChatTemplate, tokenizer: TextTokenizer) -> str:
    """Return the text between a response and the next message, which ends a response.

    Empty if the template has a special token there, which is sufficient to end a response, or
    has no text between messages.
    """
    end = template.answer_end
    plain = tokenizer.tokenize(end, False, False)
    return end if plain == tokenizer.tokenize(end, False, True) else ""
