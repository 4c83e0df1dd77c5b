"""Special formats, recognized by marks in templates; the first match counts.

chat.cpp:common_chat_try_specialized_template
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llama_py.chat.formats import (
    arg_keys,
    braces,
    bracketed,
    channels,
    elements,
    functions,
    ifm_tags,
    invokes,
    python_calls,
    recipients,
    sections,
    texts,
    translation,
)
from llama_py.chat.formats.form import AnswerForm, AnswerRequest

Make = Callable[[AnswerRequest], AnswerForm]


@dataclass(frozen=True)
class Family:
    """has: texts that a template has; lacks: that it has not."""

    has: tuple[str, ...]
    build_form: Make
    lacks: tuple[str, ...] = ()

    def fits(self, source: str) -> bool:
        return all(mark in source for mark in self.has) and not any(
            mark in source for mark in self.lacks
        )


FAMILIES: tuple[Family, ...] = (
    Family(("[SYSTEM_PROMPT]", "[TOOL_CALLS]", "[ARGS]"), bracketed.build_form, ("[CALL_ID]",)),
    Family(("chat_format=llm-jp-harmony-v1",), channels.build_llm_jp_form),
    Family(("<|channel|>",), channels.build_form),
    Family(("<atem:function_calls>", "<|eom|>"), recipients.build_recipients_form),
    Family((">>>all", ">>>${recipient}"), recipients.arrows),
    Family(("<|tool_calls_section_begin|>", "<|tool_call_begin|>"), sections.build_id_form),
    Family(("<|open|>", "<|close|>", "<|end_of_msg|>"), sections.build_nested_form),
    Family(("<|ifm|im_start|>", "<ifm|tool_calls>"), ifm_tags.build_form),
    Family(("<role>ASSISTANT</role>", "<arg_key>"), arg_keys.build_form),
    Family(("<|START_TEXT|>", "<|START_ACTION|>"), texts.build_form),
    Family(("<|tool_list_start|>", "<|tool_list_end|>"), python_calls.build_form),
    Family(("List of tools: [",), python_calls.build_form, ("<|tool_list_start|>",)),
    Family(("<|role_sep|>", "<|message_sep|>"), recipients.roles, ("<|function_call|>",)),
    Family(("]<]minimax[>[", "<tool_call>", "<invoke name="), elements.build_form),
    Family(("dsml_token", "DSML", "function_calls"), invokes.build_form),
    Family(("dsml_token", "DSML", "tool_calls"), invokes.build_form),
    Family(("'<|tool_call>call:'",), braces.build_form),
    Family(("Tool usage guidelines:", '<function name="', '<param name="'),
           functions.build_attribute_form),
    Family(("[source_lang_code]", "[target_lang_code]"), translation.build_form),
    Family(("<tool_call>", "<function=", "<parameter="), functions.build_line_form,
           ("'<tool_call><function=' ~ tool_call.name ~ '>'",)),
)  # fmt: skip


def find_form_builder(source: str) -> Make | None:
    """Return the function that builds the form of responses; None for other templates."""
    return next((family.build_form for family in FAMILIES if family.fits(source)), None)
