"""Decisions of models that score the options of all questions at once, by marked tokens of one
prompt (llama.cpp's server-decision.cpp:fill_task_joint)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ggml_py.errors import ModelError
from llama_py.chat import ChatTemplate
from llama_py.text.decision_rows import RowPrompt
from llama_py.text.decision_types import Question, replace_texts, sort_keys
from llama_py.tokenizer import Tokenizer

# The template gets these: a text between pieces, and texts at the start of marked pieces.
START, SEPARATOR = "<<clef:", "<<clef:sep>>"
QUESTION, OPTION = "<<clef:question>>", "<<clef:option>>"
MARKS = {"noul": 1, "choice": 2, "score": 3}  # of questions
OPTION_MARK = 4


def joint_prompt(
    template: ChatTemplate, tokenizer: Tokenizer, state: Any, questions: Sequence[Question]
) -> RowPrompt:
    """Return the prompt of a request.

    Raises:
        ModelError: A question or an option is empty, or the template does not mark all of them.
    """
    given = sort_keys({"state": state, "questions": [question.show() for question in questions]})
    given = replace_texts(given, lambda text: text.replace(START, "<<clef "))
    text = template.render_variables(
        **given, images=[], sep=SEPARATOR, mark_question=QUESTION, mark_option=OPTION
    )
    kinds, found, n_options = iter(questions), RowPrompt(questions, []), 0
    for piece in text.split(SEPARATOR):
        mark = 0
        if piece.startswith(QUESTION):
            question = next(kinds, None)
            mark = 0 if question is None else MARKS[question.kind]
        elif piece.startswith(OPTION):
            mark, n_options = OPTION_MARK, n_options + 1
        piece = piece.removeprefix(QUESTION).removeprefix(OPTION)
        ids = tokenizer.tokenize(piece, False)
        if mark and not ids:
            raise ModelError("the instructions and the options of a question must not be empty")
        found.tokens.extend(ids)
        found.marks.extend([mark] * len(ids))
    if next(kinds, None) is not None or n_options != sum(len(q.options) for q in questions):
        wanted = sum(len(q.options) for q in questions)
        raise ModelError(
            f"unexpected layout of the decision prompt: {n_options} of {wanted} options; "
            "convert the model again"
        )
    return found
