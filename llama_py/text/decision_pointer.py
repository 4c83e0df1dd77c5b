"""Decisions of models that compare a question's last token with the ends of its options
(llama.cpp's server-decision.cpp, type "kev")."""

from __future__ import annotations

import json
import re
from typing import Any

from ggml_py.errors import ModelError
from llama_py.chat import ChatTemplate
from llama_py.text.decision_rows import RowPrompt
from llama_py.text.decision_types import Question, QuestionOption
from llama_py.tokenizer import Tokenizer

END_OF_OPTION = "<|box_end|>"
SPECIAL = re.compile(r"<\|([A-Za-z0-9_]+)\|>")


def pointer_prompt(
    template: ChatTemplate, tokenizer: Tokenizer, state: Any, question: Question
) -> RowPrompt:
    """Return the prompt of a question.

    Raises:
        ModelError: The vocabulary has no end of an option, or the template has other ends.
    """
    ends = tokenizer.tokenize(END_OF_OPTION, False)
    if len(ends) != 1:
        raise ModelError(f"decision model has no {END_OF_OPTION} token; convert the model again")
    shown = question.show() | {
        "instructions": plain_text(question.instructions),
        "options": [*map(_show, question.options)],
    }
    text = template.render_variables(**shown, state=plain_text(state), images=[])
    ids = tokenizer.tokenize(text, False)
    found = [i for i, id in enumerate(ids) if id == ends[0]]
    if len(found) != len(question.options):
        raise ModelError(
            f"unexpected layout of the decision prompt: {len(found)} {END_OF_OPTION} tokens for "
            f"{len(question.options)} options; convert the model again"
        )
    return RowPrompt([question], ids, found, column=None)


def _show(option: QuestionOption) -> dict[str, str | None]:
    description = None if option.description is None else plain_text(option.description)
    return {"key": plain_text(option.key), "description": description}


def plain_text(value: Any) -> str:
    """Write a JSON value as text, without special tokens."""
    return hide_special(_lines(value, 0))


def hide_special(text: str) -> str:
    """Replace special tokens: `<|a|>` becomes `<¦a¦>`."""
    return SPECIAL.sub("<¦\\1¦>", text)


def _lines(value: Any, indent: int) -> str:
    pad = "  " * indent
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, list):
        items = (_lines(one, indent + 1).lstrip(" \t\n\r") for one in value)
        return "\n".join(f"{pad}- {item}" for item in items)
    if isinstance(value, dict):
        return "\n".join(_pair(f"{pad}{key}:", one, indent) for key, one in value.items())
    return json.dumps(value)


def _pair(start: str, value: Any, indent: int) -> str:
    if isinstance(value, dict | list):
        return f"{start}\n{_lines(value, indent + 1)}"
    return f"{start} {_lines(value, 0)}"
