"""Responses of models that only translate: text, without calls or reasoning
(common/parsers/translate-gemma.cpp)."""

from __future__ import annotations

from ggml_py.errors import ModelError
from llama_py.chat.formats import form
from llama_py.chat.formats.form import AnswerForm, AnswerRequest
from llama_py.chat.peg.leaves import END, rest
from llama_py.chat.peg.nodes import SPACE, lit, seq

TURN = "<start_of_turn>model\n"


def build_form(asked: AnswerRequest) -> AnswerForm:
    """Return the form of a translation. Tools are ignored, as the template does not show them.

    Raises:
        ModelError: A call is required.
    """
    if asked.required:
        raise ModelError(
            "tool_choice is required, but this chat template only translates text; omit tools"
        )
    prompt = asked.prompt if asked.said is None else TURN + (asked.said[1] or "")
    said = form.content(rest()) if asked.schema is None else form.json_content(asked.schema)
    start = lit(asked.prompt if asked.said is None else TURN)
    return AnswerForm(seq(start, SPACE, said, END), prompt, asked.is_json, False)
