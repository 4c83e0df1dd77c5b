"""What is said in an answer: text, thoughts and tool calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llama_py.chat.stream import Delta


@dataclass(slots=True)
class Call:
    """A tool call; arguments are JSON text. error: why they do not meet the tool's schema."""

    id: str
    name: str
    arguments: str = ""
    error: str = ""

    @property
    def mark(self) -> dict[str, str]:
        """The field of a wrong call; none of a right one."""
        return {"validation_error": self.error} if self.error else {}


@dataclass(slots=True)
class Said:
    """A message that deltas have been added to."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)

    def add(self, delta: Delta) -> None:
        self.content += delta.content
        self.reasoning += delta.reasoning
        if delta.index is None:
            return
        while len(self.calls) <= delta.index:
            self.calls.append(Call("", ""))
        call = self.calls[delta.index]
        call.id, call.name = call.id or delta.id, call.name or delta.name
        call.arguments += delta.arguments
        call.error = call.error or delta.error
