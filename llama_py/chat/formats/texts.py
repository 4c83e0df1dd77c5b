"""Responses with all parts between marks: reasoning, then a text or actions as JSON.

common/parsers/cohere2moe.cpp.
"""

from __future__ import annotations

from llama_py.chat.formats import form
from llama_py.chat.formats.form import AnswerForm, AnswerRequest
from llama_py.chat.formats.json_calls import CallKeys, json_calls
from llama_py.chat.peg.leaves import END, text_until
from llama_py.chat.peg.nodes import choice, optional, seq

TURN, END_TURN = "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"
ROLE = "<|CHATBOT_TOKEN|>"
THINK, THOUGHT = "<|START_THINKING|>", "<|END_THINKING|>"
TEXT, SAID = "<|START_TEXT|>", "<|END_TEXT|>"
ACTION, DONE = "<|START_ACTION|>", "<|END_ACTION|>"
RESULT, RESULTED = "<|START_TOOL_RESULT|>", "<|END_TOOL_RESULT|>"
KEYS = CallKeys(
    "tool_name",
    "parameters",
    made_id="tool_call_id",
    order=("tool_call_id", "tool_name", "parameters"),
    array=True,
)


def build_form(asked: AnswerRequest) -> AnswerForm:
    inner = text_until(THOUGHT, TEXT, ACTION)
    if asked.reasoning:
        thoughts = optional(seq(THINK, form.reasoning(inner), optional(THOUGHT)))
    else:
        thoughts = optional(form.content(seq(THINK, inner, optional(THOUGHT))))
    said = (
        form.content(text_until(SAID)) if asked.schema is None else form.json_content(asked.schema)
    )
    text = seq(TEXT, said, optional(SAID))
    if asked.tools:
        calls = json_calls((ACTION, DONE), KEYS, asked)
        text = calls if asked.required else choice(calls, text)
    root = seq(TURN + ROLE, form.thoughts(thoughts), text, optional(END_TURN), END)
    return AnswerForm(
        root,
        form.prompt_continuation(asked, TURN + ROLE + THINK, THOUGHT + TEXT),
        bool(asked.tools) or asked.is_json,
        asked.auto and not asked.is_json,
        (ACTION,),
        preserved=(
            TURN,
            END_TURN,
            ROLE,
            "<|USER_TOKEN|>",
            "<|SYSTEM_TOKEN|>",
            THINK,
            THOUGHT,
            TEXT,
            SAID,
            ACTION,
            DONE,
            RESULT,
            RESULTED,
        ),
        thinking=(THINK, (THOUGHT,)),
    )
