"""Calls after `[TOOL_CALLS]`: a name, `[ARGS]`, JSON (common/parsers/ministral3.cpp)."""

from __future__ import annotations

from llama_py.chat.formats import form
from llama_py.chat.formats.form import AnswerForm, AnswerRequest, each, tool_rule
from llama_py.chat.peg.leaves import rest, until
from llama_py.chat.peg.named import trigger
from llama_py.chat.peg.nodes import NOTHING, SPACE, Expression, choice, many, optional, seq

THINK, THOUGHT, CALL, ARGUMENTS = "[THINK]", "[/THINK]", "[TOOL_CALLS]", "[ARGS]"


def build_form(asked: AnswerRequest) -> AnswerForm:
    thoughts: Expression = NOTHING
    if asked.reasoning:
        thoughts = optional(seq(THINK, form.reasoning(until(THOUGHT)), THOUGHT))
    thoughts = form.thoughts(thoughts)
    if asked.tools:
        one = choice(
            *(
                tool_rule(
                    name,
                    form.call(form.opened(form.named(name) + ARGUMENTS) + form.arguments_of(tool)),
                )
                for name, tool in each(asked)
            )
        )
        several = many(CALL + one, 1, -1 if asked.parallel else 1)
        said = form.content(until(CALL)) + SPACE
        root = thoughts << form.calls_after(asked, said, trigger("tool call", several))
    elif asked.schema is not None:
        root = thoughts << form.json_of(asked.schema)
    else:
        root = thoughts << form.content(rest())
    return AnswerForm(
        root,
        form.continued(asked, THINK, THOUGHT),
        asked.is_json or bool(asked.tools),
        asked.lazy,
        (CALL,),
        preserved=(THINK, THOUGHT, CALL, ARGUMENTS),
        thinking=(THINK, (THOUGHT,)),
    )
