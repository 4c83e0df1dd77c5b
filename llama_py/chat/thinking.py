"""Start and end of reasoning in a model's text.

chat-diff-analyzer.cpp:analyze_reasoning and the tags in common/parsers/*.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ggml_py.errors import ModelError
from llama_py.params.choosers import Thinking

if TYPE_CHECKING:
    from llama_py.tokenizer import Tokenizer


@dataclass(frozen=True)
class Tags:
    """start, ends   before and after reasoning; the first end is the usual one
    answer           mark of the response's start after reasoning, if any
    spaces           spaces between reasoning and response belong to the tags
    turn             the header of a message, which precedes `answer` after reasoning
    spaced           a response may have spaces after each control token
    """

    start: str
    ends: tuple[str, ...]
    answer: str = ""
    spaces: bool = True
    turn: str = ""
    spaced: bool = False


USER = {"role": "user", "content": "U_USER_MSG Hello END_U"}
ANSWER = {"role": "assistant", "content": "A_ASST_MSG I can help END_A"}
THOUGHT = "REASON_PART I am thinking END_R"

MARKER = r"(?:<[^<>\s]+>|\[[^\[\]\s]+\])"
ANCHOR = 64  # length of compared prompt ends in characters
WRAPPED = re.compile(rf"({MARKER})\s*{THOUGHT}\s*({MARKER})(\s*)")

# Marks of templates and their tags, if the template's text does not reveal the tags.
THINK = Tags("<think>", ("</think>",))
THINK_IFM = Tags("<ifm|think>", ("</ifm|think>",))
KNOWN = (
    (("<|ifm|im_start|>", "<ifm|tool_calls>"), THINK_IFM),
    (("chat_format=llm-jp-harmony-v1",),
     Tags("<|channel|>analysis<|message|>", ("<|end|>",), "<|channel|>final<|message|>",
          turn="<|start|>assistant", spaced=True)),
    (("<|channel|>analysis", "<|message|>"),
     Tags("<|channel|>analysis<|message|>", ("<|end|>",), "<|channel|>final<|message|>",
          turn="<|start|>assistant")),
    (("<|channel>thought",), Tags("<|channel>thought", ("<channel|>",))),
    (("<|open|>", "<|close|>", "<|end_of_msg|>"),
     Tags("<|open|>think<|sep|>", ("<|close|>think<|sep|>",), "<|open|>response<|sep|>")),
    (("[THINK]", "[/THINK]"), Tags("[THINK]", ("[/THINK]",))),
    (("<mm:think>",), Tags("<mm:think>", ("</mm:think>",))),
    (("<|START_THINKING|>", "<|START_TEXT|>"),
     Tags("<|START_THINKING|>", ("<|END_THINKING|>",), "<|START_TEXT|>")),
    (("<function=", "<parameter=", "<think>"), Tags("<think>", ("</think>", "<tool_call>"))),
    (("content.split('</think>')",), THINK),
    (("between <think></think>", "<response></response>"),
     Tags("<think>", ("</think>",), "<response>")),
    (("<SPECIAL_12>", "</think>"), THINK),
    (("<|tool_calls_section_begin|>", "<|tool_call_begin|>"), THINK),
    (("<|tool_list_start|>", "<|tool_list_end|>"), THINK),
    (("List of tools: [",), THINK),
    (("<|begin|>assistant", "<|think|>"),
     Tags("<|think|>", ("<|end|>",), "<|content|>", turn="<|begin|>assistant")),
    (("<atem:function_calls>", "<|eom|>"),
     Tags("to=self<|message|>", ("<|eom|>",), "to=user<|message|>", turn="<|start|>assistant ")),
)  # fmt: skip

# Marks of templates, and tags by the value of `reasoning_effort`. K2 Horizon 3.7B ends reasoning
# with </ifm|think> at each effort.
BY_EFFORT = (
    (("<|ifm|im_start|>", "<ifm|tool_calls>"),
     {"medium": Tags("<ifm|think_fast>", ("</ifm|think_fast>", "</ifm|think>")),
      "low": Tags("<ifm|think_faster>", ("</ifm|think_faster>", "</ifm|think>"))}),
)  # fmt: skip


def choose_tags(source: str, usual: Tags | None, variables: Mapping[str, Any]) -> Tags | None:
    """Return the tags around reasoning for the template's variables."""
    if variables.get("enable_thinking") is False and "enable_thinking" in source:
        return usual
    for marks, by_effort in BY_EFFORT:
        if all(mark in source for mark in marks):
            return by_effort.get(str(variables.get("reasoning_effort")), usual)
    return usual


def find_tags(source: str, render: Callable[..., str]) -> Tags | None:
    """Return the tags around a model's reasoning by its template; None if it has no reasoning.

    render is `ChatTemplate.render`, and accepts `enable_thinking`.
    """
    for marks, tags in KNOWN:
        if all(mark in source for mark in marks):
            return tags
    try:
        return _around_thoughts(render) or _when_asked_to_think(render)
    except ModelError:  # the template refuses the messages
        return None


def _around_thoughts(render: Callable[..., str]) -> Tags | None:
    """Return the tags that a template writes around a message's reasoning."""
    text = render([USER, {**ANSWER, "reasoning_content": THOUGHT}], False, enable_thinking=True)
    found = WRAPPED.search(text)
    return Tags(found[1], (found[2],), spaces=bool(found[3])) if found else None


def _when_asked_to_think(render: Callable[..., str]) -> Tags | None:
    """Return tags from the end of prompts that differ only by enabled reasoning."""
    prompts = [render([USER], enable_thinking=think).rstrip() for think in (False, True)]
    for longer, shorter in (prompts, prompts[::-1]):
        end = shorter[-ANCHOR:]
        before, found, more = longer.rpartition(end) if end else ("", "", longer)
        tags = re.findall(MARKER, more) if found or not end else []
        if len(tags) == 1 and is_closing(tags[0]):
            tags = [*re.findall(MARKER, before + found)[-1:], *tags]
        if len(tags) == 1:
            tags.append(f"{tags[0][0]}/{tags[0][1:]}")
        if len(tags) == 2 and not is_closing(tags[0]):
            return Tags(tags[0], (tags[1],))
    return None


def is_closing(tag: str) -> bool:
    return tag.startswith(("</", "[/"))


class Thoughts:
    """Splitter of a streamed response into reasoning and content."""

    def __init__(self, tags: Tags, prompt: str = "") -> None:
        """Start a response; prompt: the text before it, which may end with the opening tag."""
        self.tags = tags
        self.inside = begins_inside(tags, prompt)
        self._part = self._inside if self.inside else self._start
        self._held = ""

    def push(self, text: str, final: bool = False) -> tuple[str, str]:
        """Return the reasoning and content that are now certain; all of the rest if final."""
        self._held += text
        thought = said = ""
        part = None
        while part is not self._part:
            part = self._part
            found = part(final)
            if part == self._inside:
                thought += found
            else:
                said += found
        if final:
            said, self._held = said + self._held, ""
        return thought, said

    def _start(self, final: bool) -> str:
        """Wait until an opening tag is complete or excluded."""
        text = self._held.lstrip()
        if text.startswith(self.tags.start):
            self._held = text[len(self.tags.start) :]
            self._part, self.inside = self._inside, True
        elif text and not any(t.startswith(text) for t in (self.tags.start, self.tags.answer)):
            self._part = self._gap
        return ""

    def _inside(self, final: bool) -> str:
        """Return reasoning up to a closing tag."""
        ends = [(at, end) for end in self.tags.ends if (at := self._held.find(end)) >= 0]
        if ends:
            at, end = min(ends)
            text, self._held = self._held[:at], self._held[at + len(end) :]
            self._part, self.inside = self._gap, False
            return text
        cut = len(self._held) - partial_tag_length(self._held, self.tags.ends)
        text, self._held = self._held[:cut], "" if final else self._held[cut:]
        return text

    def _gap(self, final: bool) -> str:
        """Skip text before the content's first letter."""
        mark = self.tags.answer
        at = self._held.find(mark) if mark else -1
        if at >= 0:
            self._held = self._held[at + len(mark) :]
        elif mark and not final and self._held.lstrip().startswith(("<", "[")):
            return ""
        if self.tags.spaces or mark:
            self._held = self._held.lstrip()
        if self._held:
            self._part = self._take_content
        return ""

    def _take_content(self, final: bool) -> str:
        text, self._held = self._held, ""
        return text


def begins_inside(tags: Tags, prompt: str) -> bool:
    """Return True if the prompt ends with the opening tag of reasoning."""
    return prompt.rstrip().endswith(tags.start.strip())


def detect_thinking(tags: Tags, prompt: str, may_begin: bool = True) -> Thinking:
    """Return how a response to a prompt begins; may_begin: the model may start reasoning."""
    is_marked = prompt.rstrip().endswith(tags.answer.strip())
    return Thinking(
        tags.start,
        tags.ends,
        "" if is_marked else tags.answer,
        tags.spaces,
        begins_inside(tags, prompt),
        tags.turn + tags.answer,
        may_begin,
        spaced=tags.spaced,
    )


def partial_tag_length(text: str, tags: tuple[str, ...]) -> int:
    """Return the length of the longest end of a text that may begin a tag."""
    longest = max(map(len, tags))
    for n in range(min(len(text), longest - 1), 0, -1):
        if any(tag.startswith(text[-n:]) for tag in tags):
            return n
    return 0


def control_tokens(tags: Tags, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the control tokens in the tags, which must be visible to be found."""
    ids = tokenizer.tokenize("".join((tags.start, *tags.ends, tags.answer)), add_special=False)
    return tuple(id for id in sorted({*ids}) if tokenizer.is_control(id))
