"""Templates that do not reveal their models' format, recognized by their texts.

chat-diff-analyzer.cpp:workarounds; each function corrects the detected marks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from llama_py.chat.formats.json_calls import CallKeys
from llama_py.chat.formats.marks import Marks

THINK = ("<think>", "</think>")
RESPONSE = ("<response>", "</response>")
TURN = ("<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>")


def _thoughts_in_content(marks: Marks) -> Marks:
    """Add marks of reasoning if the template only removes it from content."""
    return (
        marks
        if marks.thinks
        else _preserve_marks(replace(marks, think=THINK[0], thought=THINK[1]), THINK)
    )


def _responses(marks: Marks) -> Marks:
    found = replace(marks, think=THINK[0], thought=THINK[1], say="", said="")
    return _preserve_marks(found, (*THINK, *RESPONSE))


def _turns(marks: Marks) -> Marks:
    return marks if marks.say else _preserve_marks(replace(marks, say=TURN[0], said=TURN[1]), TURN)


def _functions(marks: Marks) -> Marks:
    return replace(
        marks,
        say="",
        said="",
        name=("", marks.name[1]),
        close="",
        section=("", ""),
        each_call=("<function=", "</function>"),
        preserved=("<|eot_id|>", "<|eom_id|>", "<function=", ">", "</function>"),
    )


def _set_begin_marks(marks: Marks) -> Marks:
    return replace(
        marks,
        section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        close="```",
        each_call=("<｜tool▁call▁begin｜>function", "<｜tool▁call▁end｜>"),
        name=("<｜tool▁sep｜>", marks.name[1]),
    )


def _lists(marks: Marks) -> Marks:
    keys = replace(marks.keys if marks.calls == "json" else CallKeys(), array=True)
    return replace(
        marks,
        calls="json",
        section=("", ""),
        each_call=("<TOOLCALL>", "</TOOLCALL>"),
        keys=keys,
        say="",
        said="",
        think="<think>\n",
        thought=THINK[1],
        preserved=("<SPECIAL_11>", "</think>", "<TOOLCALL>", "</TOOLCALL>"),
    )


def _set_wrapper(marks: Marks) -> Marks:
    return replace(marks, wrapper=True)


def _trim_marks(marks: Marks) -> Marks:
    """Strip marks: models omit the template's newlines between tags."""
    return replace(
        marks,
        think=marks.think.strip(),
        thought=marks.thought.strip(),
        value=(marks.value[0].strip(), marks.value[1].strip()),
        stops=("</assistant>",),
    )


def _trimmed_values(marks: Marks) -> Marks:
    return replace(marks, value=(marks.value[0], marks.value[1].strip()))


def _preserve_marks(marks: Marks, more: tuple[str, ...]) -> Marks:
    return replace(marks, preserved=tuple(dict.fromkeys((*marks.preserved, *more))))


@dataclass(frozen=True)
class FormPatch:
    """has: texts that a template has; lacks: that it has not."""

    has: tuple[str, ...]
    change: Callable[[Marks], Marks]
    lacks: tuple[str, ...] = ()

    def fits(self, source: str) -> bool:
        return all(mark in source for mark in self.has) and not any(
            mark in source for mark in self.lacks
        )


PATCHES: tuple[FormPatch, ...] = (
    FormPatch(("content.split('</think>')",), _thoughts_in_content,
          ("reasoning_content", "<SPECIAL_12>")),
    FormPatch(("Write your thoughts between <think></think> and write your response between "
           "<response></response>",), _responses),
    FormPatch(TURN, _turns),
    FormPatch(('set has_code_interpreter = tools | selectattr("type", "equalto", '
           '"code_interpreter") | list | length > 0',), _functions),
    FormPatch(("{{'<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + "
           "'<｜tool▁sep｜>'",), _set_begin_marks),
    FormPatch(("<SPECIAL_10>", "<SPECIAL_11>", "<SPECIAL_12>", "<TOOL_RESPONSE>"), _lists),
    FormPatch(('Respond in the format {"name": function name', "Do not use variables."),
        _set_wrapper),
    FormPatch(("laguna_glm_thinking",), _trim_marks),
    FormPatch(("Bailing V3 chat template",), _trimmed_values),
)  # fmt: skip


def patch_marks(marks: Marks, source: str) -> Marks:
    """Return the marks that a template's models write."""
    for patch in PATCHES:
        if patch.fits(source):
            marks = patch.change(marks)
    return marks
