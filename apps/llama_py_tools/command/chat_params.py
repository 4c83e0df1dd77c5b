"""Options of conversations: flags and defaults of llama-completion and llama-cli."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_py.params.option import Params, option
from llama_py.params.rules import integers
from llama_py.params.texts import on_off_auto
from llama_py_tools.command.escapes import ENCODING

if TYPE_CHECKING:
    from llama_py import Model


def json_object(text: str) -> dict[str, Any]:
    """Parse `{"enable_thinking": false}` to a dictionary."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as e:
        raise ValueError(f"expected a JSON object, got {text!r}: {e}") from None
    if not isinstance(found, dict):
        raise ValueError(f"expected a JSON object, got {text!r}")
    return found


@dataclass(frozen=True, kw_only=True)
class ChatParams(Params):
    """Options of conversations in a terminal."""

    conversation: bool | None = option(
        None,
        "-cnv --conversation",
        "talk, through a chat template (default: if the model has"
        " one; the demo: if there is no -p); /help lists commands",
        off="-no-cnv --no-conversation",
    )
    single_turn: bool = option(False, "-st --single-turn", "one question, one answer")
    simple_io: bool = option(
        False, "--simple-io", "plain lines, for consoles and programs that know no others"
    )
    multiline_input: bool = option(
        False,
        "-mli --multiline-input",
        "a message ends behind a line that ends with a backslash;"
        " without this, such a line goes on in the next",
    )
    system_prompt: str = option("", "-sys --system-prompt", "what to be", metavar="TEXT")
    system_prompt_file: str = option(
        "", "-sysf --system-prompt-file", "read that from a file", metavar="FILE"
    )
    chat_template: str = option(
        "",
        "--chat-template",
        "instead of the model's: the name of a template that llama.cpp knows"
        " (a wrong one lists them), or a Jinja text",
        metavar="NAME|JINJA",
    )
    chat_template_file: str = option(
        "",
        "--chat-template-file",
        "instead of the model's: a file with a Jinja text",
        metavar="FILE",
    )
    chat_template_kwargs: Mapping[str, Any] = option(
        dict,
        "--chat-template-kwargs",
        "more variables for the template",
        metavar="JSON",
        parse=json_object,
        many=True,
    )
    jinja: bool = option(True, "--jinja", "templates are Jinja texts (always so)")
    reasoning_format: str = option(
        "auto",
        "--reasoning-format",
        "thoughts: none leaves them in the answer; else they are no"
        " part of it, but shown dimmed on a terminal",
        choices=("auto", "none", "deepseek", "deepseek-legacy"),
        env="THINK",
    )
    skip_chat_parsing: bool = option(
        False,
        "--skip-chat-parsing",
        "the same as --reasoning-format none",
        off="--no-skip-chat-parsing",
    )
    reasoning: str = option(
        "auto",
        "-rea --reasoning",
        "think before an answer; auto: as the template has it",
        choices=("on", "off", "auto"),
        parse=on_off_auto,
    )
    reasoning_effort: str = option(
        "default",
        "--reasoning-effort",
        "how much to think, for templates that can tell the model: minimal, low, medium, high, ...",
        metavar="LEVEL",
    )
    reasoning_budget: int = option(
        -1,
        "--reasoning-budget",
        "tokens of thoughts at most (-1: no limit, 0: none)",
        env="THINK_BUDGET",
        check=integers(-1),
    )
    reasoning_budget_message: str = option(
        "",
        "--reasoning-budget-message",
        "what the model thinks last when that is used up",
        env="THINK_BUDGET_MESSAGE",
        metavar="TEXT",
    )
    reasoning_preserve: bool = option(
        True,
        "--reasoning-preserve",
        "show the model its thoughts of all earlier answers, if the template can",
        off="--no-reasoning-preserve",
    )

    @property
    def asked(self) -> bool:
        """True if the options request a conversation, for any model."""
        if self.conversation is not None:
            return self.conversation
        return self.single_turn or bool(self.system_prompt or self.system_prompt_file)

    def wanted(self, model: Model) -> bool:
        """Return True if this is a conversation: by default if the model has a template."""
        return self.asked or (self.conversation is None and model.chat_template is not None)

    def template(self) -> str | None:
        """Return the template that replaces the model's; ModelError for an unknown name."""
        if self.chat_template_file:
            return Path(self.chat_template_file).read_bytes().decode(*ENCODING)
        if not self.chat_template:
            return None
        from llama_py.chat.named import source_of

        return source_of(self.chat_template)

    def variables(self) -> dict[str, Any]:
        """Return the template's variables."""
        found = {"preserve_reasoning": self.reasoning_preserve, **self.chat_template_kwargs}
        if self.reasoning != "auto":
            found["enable_thinking"] = self.reasoning == "on"
        if self.reasoning_effort != "default":
            found["reasoning_effort"] = self.reasoning_effort
        return found
