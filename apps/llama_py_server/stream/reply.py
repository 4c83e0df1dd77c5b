"""Reply in progress: its text, tokens and probabilities, and its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from llama_py.batch.prompts import n_cells
from llama_py.chat.arguments import response_arguments
from llama_py.serving import Timings

if TYPE_CHECKING:
    from llama_py.chat.arguments import Arguments
    from llama_py.chat.stream import AnswerDelta
    from llama_py.serving import Event, Request, Score
    from llama_py_server.schema.completion import Delivery

_STOP_TYPES = {"eos": "eos", "stop": "word"}  # all other reasons are "limit"
Top = tuple[tuple[int, float], ...]


@dataclass(slots=True)
class ReplyCall:
    """A tool call; arguments are JSON text. error: why they do not meet the tool's schema."""

    id: str
    name: str
    arguments: str = ""
    error: str = ""

    @property
    def mark(self) -> dict[str, str]:
        """Error field of an invalid call; empty for a valid call."""
        return {"validation_error": self.error} if self.error else {}


@dataclass(slots=True)
class ReplyMessage:
    """A message that deltas have been added to."""

    content: str = ""
    reasoning: str = ""
    calls: list[ReplyCall] = field(default_factory=list)

    def add(self, delta: AnswerDelta) -> None:
        self.content += delta.content
        self.reasoning += delta.reasoning
        if delta.index is None:
            return
        while len(self.calls) <= delta.index:
            self.calls.append(ReplyCall("", ""))
        call = self.calls[delta.index]
        call.id, call.name = call.id or delta.id, call.name or delta.name
        call.arguments += delta.arguments
        call.error = call.error or delta.error


@dataclass(frozen=True, slots=True)
class ChosenToken:
    """A chosen token, its bytes in the text, and how likely it and the most likely tokens were:
    logarithms, or probabilities after sampling."""

    token: int
    data: bytes
    value: float | None
    top: Top


@dataclass(slots=True)
class Change:
    """Change by one token: text, tokens since the last text, parts of the message.

    reply       the reply including this change
    of_content  the chosen tokens since the last part, if this part is content
    is_progress  it reports prompt progress
    """

    reply: Reply
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    deltas: list[AnswerDelta] = field(default_factory=list)
    chosen: list[ChosenToken] = field(default_factory=list)
    of_content: list[ChosenToken] = field(default_factory=list)
    first: bool = False
    is_progress: bool = False

    @property
    def is_shown(self) -> bool:
        """True if a stream shows it before the end."""
        shown = self.first or self.text or self.deltas or self.chosen
        return bool(shown or (self.tokens and self.reply.delivery.return_tokens))


class Reply:
    """One reply to one prompt.

    index     position among the replies of the request
    timings   progress;  slot  the sequence that generates the reply, -1 before the start
    said      the current message, if the task is a chat
    scores    of the prompt's tokens except the first, if requested
    n_reasoning  tokens of its reasoning;  of_content  the chosen tokens of its content
    error     reason why the complete reply does not satisfy the response's schema
    stop_type "none" before the end; then "eos", "word" (with `stopping_word`) or "limit"
    """

    def __init__(self, index: int, request: Request, delivery: Delivery) -> None:
        self.index, self.request, self.delivery = index, request, delivery
        self.text = ""
        self.tokens: list[int] = []
        self.chosen: list[ChosenToken] = []
        self.timings, self.slot = Timings(n_prompt=n_cells(request.prompt)), -1
        self.stop_type, self.stopping_word, self.truncated = "none", "", False
        self.said = ReplyMessage()
        self._reader = None if request.chat is None else request.chat.reader()
        self._waiting: list[int] = []
        self.scores: list[Score] = []
        self.error = ""
        self.n_reasoning = self._n_read = 0
        self.of_content: list[ChosenToken] = []
        self._unread: list[ChosenToken] = []

    @property
    def prompt(self) -> Sequence[int]:
        """The tokens of the prompt."""
        return self.request.prompt

    @cached_property
    def response(self) -> Arguments | None:
        """The schema of the reply; None: it is no JSON of a schema."""
        chat = self.request.chat
        found = None if chat is None else chat.format.response
        return found or response_arguments(self.request.params)

    @property
    def is_checked(self) -> bool:
        """True if the end of the reply needs a check that may take long."""
        chat = self.request.chat
        called = chat is not None and bool(chat.format.arguments)
        return called or (self.response is not None and bool(self.response.left_out))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Lines about assertions of schemas that no grammar enforces."""
        chat, response = self.request.chat, self.response
        found = () if chat is None else chat.format.warnings
        return found or ((response.warning,) if response and response.warning else ())

    @property
    def has_ended(self) -> bool:
        return self.stop_type != "none"

    @property
    def is_cut(self) -> bool:
        """True if it ended at a limit."""
        return self.stop_type == "limit"

    @property
    def mark(self) -> dict[str, str]:
        """The field of a response that does not meet its schema."""
        return {"validation_error": self.error} if self.error else {}

    @property
    def has_new_line(self) -> bool:
        return "\n" in self.text

    @property
    def n_prompt(self) -> int:
        return n_cells(self.prompt)

    @property
    def n_cached(self) -> int:
        return self.timings.n_reused

    @property
    def n_generated(self) -> int:
        return self.timings.n_gen

    def take(self, event: Event) -> Change:
        """Apply an event and return the change."""
        change = Change(self, event.text, first=not self.tokens and event.token is not None)
        change.is_progress = event.token is None and event.finish_reason is None
        self.timings, self.slot = event.timings, event.slot
        self.text += event.text
        self.scores += event.scores
        if event.token is not None:
            self._take_token(event.token, event, change)
        at_once = self.delivery.return_tokens  # though the text of some is empty, or held back
        if event.text or event.finish_reason or change.chosen or change.first or at_once:
            change.tokens, self._waiting = self._waiting, []
        if self._reader is not None and event.text:
            change.deltas = self._reader.feed(event.text)
        if event.finish_reason is not None:
            self._end(event)
            change.deltas += self._reader.rest() if self._reader is not None else []
        if change.deltas:
            self._attribute(change)
        if event.finish_reason is not None:
            self._check()
        return change

    def _check(self) -> None:
        """Check a response of a schema that its grammar does not enforce as a whole."""
        response, is_message = self.response, self.request.chat is not None
        if response is None or not response.left_out or (self.said.calls and not self.said.content):
            return
        self.error = response.problem(self.said.content if is_message else self.text)

    def _attribute(self, change: Change) -> None:
        """Assign the tokens since the last part of the message to the parts of this change."""
        for delta in change.deltas:
            self.said.add(delta)
        if any(delta.content for delta in change.deltas):
            change.of_content = self._unread
            self.of_content += self._unread
        if any(delta.reasoning for delta in change.deltas):
            self.n_reasoning += self.n_generated - self._n_read
        self._n_read, self._unread = self.n_generated, []

    def _take_token(self, id: int, event: Event, change: Change) -> None:
        self.tokens.append(id)
        self._waiting.append(id)
        if event.logprob is None:
            return
        value, top = event.logprob, event.top
        if self.request.post_sampling_probs:
            value = math.exp(value)
            top = tuple((id, math.exp(log)) for id, log in top if log > -math.inf)
        change.chosen = [ChosenToken(id, event.data, value, top)]
        self.chosen += change.chosen
        self._unread += change.chosen

    def _end(self, event: Event) -> None:
        self.stop_type = _STOP_TYPES.get(str(event.finish_reason), "limit")
        self.stopping_word, self.truncated = event.stopped_by, event.truncated
        if self.stop_type == "word" and not event.stopped_by:
            self.stop_type = "eos"  # end of a grammar, for a model without an end token
        if event.stopped_by:
            self._drop_stop()

    def _drop_stop(self) -> None:
        """Drop the tokens of the stop string, which are not in the text."""
        left = len(self.text.encode())
        for i, one in enumerate(self.chosen):
            if left <= 0:
                n = len(self.chosen) - i
                del self.chosen[i:], self._unread[max(len(self._unread) - n, 0) :]
                return
            left -= len(one.data)
