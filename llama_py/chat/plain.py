"""Response format with text and reasoning only, without tool calls or schema.

It has the interface of `ChatFormat`. It does not import the modules for grammars and tool calls,
which load slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from llama_py.chat.answer import ChatAnswer
from llama_py.chat.stream import AnswerDelta
from llama_py.chat.thinking import Tags, Thoughts, begins_inside, control_tokens, detect_thinking

if TYPE_CHECKING:
    from llama_py.chat.arguments import Arguments
    from llama_py.params.choosers import Thinking
    from llama_py.sampler import Constraint
    from llama_py.tokenizer import Tokenizer


class PlainReader:
    """Reader that receives a response in pieces and separates its reasoning.

    Attributes:
        answer: The response received to date.
    """

    def __init__(self, thoughts: Thoughts | None = None, start: str = "") -> None:
        """Create a reader; the end of the prompt may begin the response.

        Args:
            thoughts: Separates reasoning from content; None: all is content.
            start: The part of the response that is in the prompt.
        """
        self._thoughts, self._start = thoughts, start
        self.answer = ChatAnswer()

    def feed(self, text: str) -> list[AnswerDelta]:
        """Add a piece of the response and return the deltas that it completes."""
        return self._read(text, final=False)

    def rest(self) -> list[AnswerDelta]:
        """Return the remaining deltas at the end of the response."""
        return self._read("", final=True)

    def _read(self, text: str, final: bool) -> list[AnswerDelta]:
        thought, said, self._start = "", self._start + text, ""
        if self._thoughts is not None:
            thought, said = self._thoughts.push(said, final)
        known = self.answer
        self.answer = ChatAnswer(known.content + said, (known.reasoning + thought).lstrip("\n"))
        return [AnswerDelta(said, thought)] if said or thought else []


@dataclass(frozen=True)
class PlainFormat:
    """Format of a response without tool calls, for generation and parsing.

    Attributes:
        prompt: The complete prompt.
        tags: The template's tags around reasoning, or None.
        thinks: The model may open reasoning itself.
        separates: Reasoning is separated from content.
    """

    prompt: str
    tags: Tags | None = None
    thinks: bool = True
    separates: bool = True
    stops: tuple[str, ...] = ()
    arguments: tuple[Arguments, ...] = ()
    response: Arguments | None = None
    warnings: tuple[str, ...] = ()

    @cached_property
    def thinking(self) -> Thinking | None:
        """Delimiters at the start and end of the response's reasoning."""
        return None if self.tags is None else detect_thinking(self.tags, self.prompt, self.thinks)

    def list_shown_tokens(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """Return the control tokens of the tags."""
        return () if self.tags is None else control_tokens(self.tags, tokenizer)

    def call_scan(self) -> Callable[[bytes], bool] | None:
        """Return None: a response has no tool calls."""
        return None

    def constraint(self, tokenizer: Tokenizer, most: int | None = None) -> Constraint | None:
        """Return None: a response may be any text."""
        return None

    def parser(self) -> PlainReader:
        """Return a reader for one response."""
        if self.tags is None:
            return PlainReader()
        if self.separates:
            return PlainReader(Thoughts(self.tags, self.prompt))
        return PlainReader(start=self.tags.start if begins_inside(self.tags, self.prompt) else "")
