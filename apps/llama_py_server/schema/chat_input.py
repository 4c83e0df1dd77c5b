"""What a request says of a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Body = dict[str, Any]


@dataclass(frozen=True)
class PromptOptions:
    """What a request says of how its prompt is made.

    continued  whether the last message goes on: True, or which part of it does
    parallel_tool_calls  None: if the template takes several calls in a message
    """

    add_generation_prompt: bool = True
    continued: bool | str = False
    parallel_tool_calls: bool | None = None
    reasoning_format: str = "auto"
    budget: int = -1
    budget_message: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ChatInput:
    """What a request asks for.

    tool_choice  as OpenAI has it;  schema  what the answer must be, as JSON; None: anything
    plain        all of the answer is content, whatever it looks like
    """

    messages: Sequence[Body]
    tools: Sequence[Body]
    tool_choice: Any
    schema: Any
    options: PromptOptions
    plain: bool = False
