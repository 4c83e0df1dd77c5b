"""Where an answer ends, if the template alone says so."""

from __future__ import annotations

from typing import Protocol

from llama_py.chat.template import ChatTemplate


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
    end = template.answer_end
    plain = tokenizer.tokenize(end, False, False)
    return end if plain == tokenizer.tokenize(end, False, True) else ""
