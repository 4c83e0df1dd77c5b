"""Options of conversations: flags and defaults of llama-completion and llama-cli."""

from __future__ import annotations

import json
from collections.abc import Mapping
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


class ChatParams(Params):
    """Options of conversations in a terminal."""

    group = "chat"

    conversation: bool | None = option(
        None,
        "-cnv --conversation",
        "interactive chat (default: if the model has a chat template); demo model: if -p is not"
        " set",
        off="-no-cnv --no-conversation",
    )
    single_turn: bool = option(False, "-st --single-turn", "end the chat after one response")
    simple_io: bool = option(
        False, "--simple-io", "plain input and output, for simple consoles and for other programs"
    )
    multiline_input: bool = option(
        False,
        "-mli --multiline-input",
        "accept several lines per message, until a line that ends with a backslash; off: a"
        " backslash continues the message",
    )
    system_prompt: str = option(
        "", "-sys --system-prompt", "system prompt for the chat template", metavar="TEXT"
    )
    system_prompt_file: str = option(
        "", "-sysf --system-prompt-file", "file with the system prompt", metavar="FILE"
    )
    chat_template: str = option(
        "",
        "--chat-template",
        "chat template instead of the model's: a name known to llama.cpp, or a Jinja template;"
        " a wrong name lists the known names",
        metavar="NAME|JINJA",
    )
    chat_template_file: str = option(
        "",
        "--chat-template-file",
        "file with a Jinja chat template, instead of the model's",
        metavar="FILE",
    )
    chat_template_kwargs: Mapping[str, Any] = option(
        dict,
        "--chat-template-kwargs",
        "additional variables for the chat template",
        metavar="JSON",
        parse=json_object,
        many=True,
    )
    jinja: bool = option(True, "--jinja", "use Jinja chat templates (default: always on)")
    reasoning_format: str = option(
        "auto",
        "--reasoning-format",
        "place of the reasoning: in the response (none), or separate from the response and"
        " dimmed on a terminal (all others)",
        choices=("auto", "none", "deepseek", "deepseek-legacy"),
        env="THINK",
    )
    skip_chat_parsing: bool = option(
        False,
        "--skip-chat-parsing",
        "do not separate the reasoning from the response",
        off="--no-skip-chat-parsing",
    )
    reasoning: str = option(
        "auto",
        "-rea --reasoning",
        "reasoning before the response (auto: from the template)",
        choices=("on", "off", "auto"),
        parse=on_off_auto,
    )
    reasoning_effort: str = option(
        "default",
        "--reasoning-effort",
        "reasoning effort, such as low or high (default: from the template); some templates"
        " ignore it",
        metavar="LEVEL",
    )
    reasoning_budget: int = option(
        -1,
        "--reasoning-budget",
        "maximum tokens of reasoning (-1: no limit, 0: no reasoning)",
        env="THINK_BUDGET",
        check=integers(-1),
    )
    reasoning_budget_message: str = option(
        "",
        "--reasoning-budget-message",
        "text that ends the reasoning when the budget is used up",
        env="THINK_BUDGET_MESSAGE",
        metavar="TEXT",
    )
    reasoning_preserve: bool = option(
        True,
        "--reasoning-preserve",
        "include the reasoning of all earlier responses in the prompt, if the template supports it",
        off="--no-reasoning-preserve",
    )

    @property
    def requests_chat(self) -> bool:
        """True if the options request a conversation, for any model."""
        if self.conversation is not None:
            return self.conversation
        return self.single_turn or bool(self.system_prompt or self.system_prompt_file)

    def is_chat(self, model: Model) -> bool:
        """Return True if this is a conversation: by default if the model has a template."""
        return self.requests_chat or (self.conversation is None and model.chat_template is not None)

    def template(self) -> str | None:
        """Return the template that replaces the model's; ModelError for an unknown name."""
        if self.chat_template_file:
            return Path(self.chat_template_file).read_bytes().decode(*ENCODING)
        if not self.chat_template:
            return None
        from llama_py.chat.named import template_source

        return template_source(self.chat_template)

    def variables(self) -> dict[str, Any]:
        """Return the template's variables."""
        found = {"preserve_reasoning": self.reasoning_preserve, **self.chat_template_kwargs}
        if self.reasoning != "auto":
            found["enable_thinking"] = self.reasoning == "on"
        if self.reasoning_effort != "default":
            found["reasoning_effort"] = self.reasoning_effort
        return found
