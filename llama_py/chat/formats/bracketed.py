"""Calls after `[TOOL_CALLS]`: a name, `[ARGS]`, JSON (common/parsers/ministral3.cpp)."""

from __future__ import annotations

from llama_py.chat.formats import form
from llama_py.chat.formats.form import AnswerForm, AnswerRequest, iterate_tools, tool_rule
from llama_py.chat.peg.leaves import rest, text_until
from llama_py.chat.peg.named import trigger
from llama_py.chat.peg.nodes import NOTHING, SPACE, Expression, choice, optional, repetition, seq

THINK, THOUGHT, CALL, ARGUMENTS = "[THINK]", "[/THINK]", "[TOOL_CALLS]", "[ARGS]"


def build_form(asked: AnswerRequest) -> AnswerForm:
    thoughts: Expression = NOTHING
    if asked.reasoning:
        thoughts = optional(seq(THINK, form.reasoning(text_until(THOUGHT)), THOUGHT))
    thoughts = form.thoughts(thoughts)
    if asked.tools:
        one = choice(
            *(
                tool_rule(
                    name,
                    form.call(
                        form.opened(form.named(name) + ARGUMENTS) + form.call_arguments(tool)
                    ),
                )
                for name, tool in iterate_tools(asked)
            )
        )
        several = repetition(CALL + one, 1, -1 if asked.parallel else 1)
        said = form.content(text_until(CALL)) + SPACE
        root = thoughts << form.content_then_calls(asked, said, trigger("tool call", several))
    elif asked.schema is not None:
        root = thoughts << form.json_content(asked.schema)
    else:
        root = thoughts << form.content(rest())
    return AnswerForm(
        root,
        form.prompt_continuation(asked, THINK, THOUGHT),
        asked.is_json or bool(asked.tools),
        asked.lazy,
        (CALL,),
        preserved=(THINK, THOUGHT, CALL, ARGUMENTS),
        thinking=(THINK, (THOUGHT,)),
    )
