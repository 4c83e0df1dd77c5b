"""Chat templates: rendering of messages in a sandbox.

chat.cpp:common_chat_templates_apply_jinja, common_chat_template_direct_apply_impl. The template is
an untrusted program, so it runs in a sandbox, and any error in the template is a ModelError.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ggml_py._moved import Former
from ggml_py.errors import ModelError
from llama_py.chat import families
from llama_py.chat.caps import Caps, detect_caps, watch
from llama_py.chat.history import render_history
from llama_py.chat.messages import (
    Message,
    adapt_messages,
    complete_message,
    deep_copy,
    whole_tool,
    with_content,
)
from llama_py.chat.thinking import Tags, choose_tags, find_tags
from llama_py.gguf.metadata import printable
from llama_py.support.stopping import iterate_checked

if TYPE_CHECKING:
    from jinja2 import Template

_FILE_NAME = "<template>"  # Jinja's name for a template from a string
MAX_WHY = 1000  # characters of an error message


class ChatTemplate:
    """A Jinja chat template. `bos` and `eos` are the texts of these tokens; tool_use is a
    template that replaces this one if there are tools."""

    def __init__(
        self, source: str, bos: str = "", eos: str = "", tool_use: str | None = None
    ) -> None:
        self.source, self.bos, self.eos = source, bos, eos
        self.tool_use = None if tool_use is None else ChatTemplate(tool_use, bos, eos)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **extra: Any,
    ) -> str:
        """Render the prompt for `messages` ({"role": ..., "content": ...}).

        tools have the form of the OpenAI API; `extra` are further variables for the template, such
        as `enable_thinking` (True, if the model can), `reasoning_effort`, or `preserve_reasoning`
        (True: include the reasoning of all earlier responses, if the template can). Raises
        ModelError, with the template's line, for any error in the template.
        """
        if tools and self.tool_use is not None:
            return self.tool_use.render(messages, add_generation_prompt, tools, **extra)
        template = self._template
        variables = self._names(extra)
        if tools:
            variables["tools"] = [whole_tool(tool) for tool in tools]
        if add_generation_prompt:
            variables["add_generation_prompt"] = True

        def render_prompt(messages: list[Message]) -> str:
            return self._render_template(
                template, messages=self._adapt(messages, variables), **deep_copy(variables)
            )

        return render_history([complete_message(message) for message in messages], render_prompt)

    def render_plain(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        """Render messages unchanged, except for contents as texts or lists of parts, and with only
        these variables. Raises ModelError, as `render`."""
        template = self._template
        found = [with_content(deep_copy(message), self.caps) for message in messages]
        tokens = {"bos_token": self.bos, "eos_token": self.eos}
        return self._render_template(template, messages=found, **tokens, **deep_copy(variables))

    def render_variables(self, **variables: Any) -> str:
        """Render with only these variables, without messages. Raises ModelError, as `render`."""
        return self._render_template(self._template, **deep_copy(variables))

    plain = Former("render_plain")

    def _render_template(self, template: Template, **variables: Any) -> str:
        try:
            return _run(template, **variables)
        except Exception as error:  # a template can raise anything
            why = printable(str(error)[:MAX_WHY])
            raise ModelError(f"chat template, {_place(error)}: {why}") from error

    def check(self) -> None:
        """Raise ModelError if the template cannot be used at all."""
        _ = self._template
        if self.tool_use is not None:
            self.tool_use.check()

    def _names(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Return the template's variables, without messages and tools."""
        from llama_py.chat import sandbox

        day = sandbox.now()
        found = {"preserve_reasoning": True, **deep_copy(extra)}
        keep, effort = found["preserve_reasoning"], found.get("reasoning_effort")
        if "enable_thinking" not in found:
            found["enable_thinking"] = self.thinking is not None
        names: dict[str, Any] = {}
        if isinstance(keep, bool):  # under the names that templates use
            names = {"preserve_thinking": keep}
            gone = ("clear_thinking", "truncate_history_thinking", "drop_thinking")
            names |= dict.fromkeys(gone, not keep)
        if isinstance(effort, str):
            names["reasoning_strength"] = effort
        return {
            **names,
            "bos_token": self.bos,
            "eos_token": self.eos,
            "datetime": day.strftime("%b %d %Y"),
            "date_string": day.strftime("%d %b %Y"),
            **found,
        }

    def _adapt(self, messages: list[Message], variables: Mapping[str, Any]) -> list[Message]:
        found: list[Message] = deep_copy(messages)
        if families.needs_trimming(self.source):
            found = [_trim(message) for message in found]
        found = adapt_messages(found, self.caps, developer=families.has_channels(self.source))
        families.add_thoughts(self.source, found)
        adjust = families.find_adjustment(self.source, variables)
        return adjust(found) if adjust is not None else found

    @cached_property
    def caps(self) -> Caps:
        """Capabilities of the template; ModelError if it is invalid."""
        from llama_py.chat.sandbox import Sandbox

        _ = self._template
        sandbox = Sandbox()
        watch(sandbox)
        template = sandbox.from_string(families.patch_template(self.source))

        def render_trial(messages: list[Message], **variables: Any) -> str:
            families.add_thoughts(self.source, messages)
            return _run(template, messages=messages, **variables)

        return detect_caps(render_trial)

    @cached_property
    def thinking(self) -> Tags | None:
        """The tags around the model's reasoning; None without reasoning."""
        from llama_py.chat.sandbox import always_the_same

        with always_the_same():
            return find_tags(self.source, self.render)

    def tags(self, variables: Mapping[str, Any]) -> Tags | None:
        """Return the tags around reasoning for the template's `variables`, or None."""
        return choose_tags(self.source, self.thinking, variables)

    @cached_property
    def answer_end(self) -> str:
        """The text between a response and the next message; "" if it is unknown."""
        texts = ("U_FIRST_MSG", "A_FIRST_MSG", "U_NEXT_MSG")
        roles = ("user", "assistant", "user")
        messages = [{"role": r, "content": text} for r, text in zip(roles, texts, strict=True)]
        try:
            text = self.render(messages, add_generation_prompt=False)
        except ModelError:  # the template refuses the conversation
            return ""
        _, answered, rest = text.rpartition(texts[1])
        end, following, _ = rest.partition(texts[2])
        return end if answered and following else ""

    @cached_property
    def _template(self) -> Template:
        from llama_py.chat.sandbox import Sandbox

        try:
            return Sandbox().from_string(families.patch_template(self.source))
        except Exception as error:  # a template can raise anything
            why = printable(str(error)[:MAX_WHY])
            raise ModelError(f"chat template, {_place(error)}: {why}") from error


def _run(template: Template, **variables: Any) -> str:
    environment: Any = template.environment
    environment.start()
    return "".join(iterate_checked(template.generate(variables)))


def _trim(message: Message) -> Message:
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": content.strip()}
    parts = [{**p, "text": p["text"].strip()} if p.get("type") == "text" else p for p in content]
    return {**message, "content": parts}


def _place(error: Exception) -> str:
    """Return `line 3`: the position in the template, from the error or its innermost frame."""
    line = getattr(error, "lineno", None)
    if line is None:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == _FILE_NAME]
        line = lines[-1] if lines else None
    return f"line {line}" if line is not None else type(error).__name__
