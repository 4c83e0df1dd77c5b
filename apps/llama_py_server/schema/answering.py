"""How a conversation's answer is written: its prompt, what it may be, and how it is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from llama_py.chat.budget import ThoughtBudget
from llama_py.chat.thinking import control_tokens
from llama_py.chat.tools import AnswerDelta, format_of
from llama_py.text.chat_prompt import without_images

if TYPE_CHECKING:
    from llama_py.chat import ChatTemplate
    from llama_py.params.choosers import LogitsProcessor
    from llama_py.sampler.constraint import Constraint
    from llama_py.serving import Engine
    from llama_py_server.schema.chat_input import ChatInput


class ReplyReader(Protocol):
    """What makes deltas of a text that comes piece by piece, and of its end."""

    def feed(self, text: str) -> list[AnswerDelta]: ...

    def rest(self) -> list[AnswerDelta]: ...


class PlainReader:
    """All of a text is content."""

    def feed(self, text: str) -> list[AnswerDelta]:
        return [AnswerDelta(content=text)] if text else []

    def rest(self) -> list[AnswerDelta]:
        return []


class Answering:
    """Of the answers to one conversation.

    prompt   the whole prompt;  stops  what ends an answer besides the model's own tokens
    thinking  the reasoning before the content, where a client's grammar begins
    marks    where other prompts may go on, once `mark` has been called
    """

    def __init__(self, engine: Engine, template: ChatTemplate, chat_input: ChatInput) -> None:
        """ModelError for messages that the template does not take."""
        self._engine, self._input, o = engine, chat_input, chat_input.options
        self._tokenizer = engine.model.tokenizer
        self.format = format_of(
            template,
            without_images(chat_input.messages),
            tools=chat_input.tools or None,
            tool_choice=chat_input.tool_choice,
            parallel_tool_calls=o.parallel_tool_calls,
            json_schema=chat_input.schema,
            reasoning_format=o.reasoning_format,
            add_generation_prompt=o.add_generation_prompt,
            continue_final_message=o.continued,
            **o.variables,
        )
        self.prompt, self.stops = self.format.prompt, self.format.stops
        self.reasoning_format, self.thinking = o.reasoning_format, self.format.thinking
        self._tags = template.thinking
        self.marks: list[int] | None = None

    def mark(self, ids: Sequence[int]) -> None:
        """The prompt has these tokens."""
        o = self._input.options
        self.marks = self._engine.marks(self._input.messages, ids, o.variables)

    @property
    def preserved_tokens(self) -> tuple[int, ...]:
        """Control tokens that must be seen for an answer to be understood."""
        tokenizer = self._tokenizer
        ids = [tokenizer.tokenize(text, False) for text in self.format.preserved_tokens]
        found = [one[0] for one in ids if len(one) == 1]
        if self._tags is not None:
            found += control_tokens(self._tags, tokenizer)
        return tuple(dict.fromkeys(found))

    def processors(self) -> tuple[LogitsProcessor, ...]:
        """What ends thoughts that are too long. One answer uses it."""
        o = self._input.options
        if o.budget < 0 or self._tags is None:
            return ()
        tokenizer = self._tokenizer
        return (ThoughtBudget(tokenizer, self._tags, o.budget, self.prompt, o.budget_message),)

    def constraint(self, most: int) -> Constraint | None:
        """What one answer of `most` tokens may be: its calls, or JSON. GrammarError where that
        cannot be."""
        return self.format.constraint(self._tokenizer, most)

    def reader(self) -> ReplyReader:
        return PlainReader() if self._input.plain else self.format.parser()
