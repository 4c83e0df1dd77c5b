"""Of /v1/chat/completions (server-task.cpp:to_json_oaicompat_chat)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_py_server.stream.writers.native import whole
from llama_py_server.stream.writers.openai import OpenAI, finish_reason, usage
from llama_py_server.stream.writers.progress import timings, with_progress
from llama_py_server.wire.sse import Event

if TYPE_CHECKING:
    from llama_py.chat.stream import Delta
    from llama_py_server.models.state import State
    from llama_py_server.stream.reply import Answer, Change, Said


class Chat(OpenAI):
    """Messages, and what is added to them.

    older: calls are in `function_call`;  forced: the function that must be called
    """

    kind = ("chat.completion", "chat.completion.chunk")

    def __init__(self, state: State, older: bool = False, forced: str = "") -> None:
        super().__init__(state)
        self._older, self._forced = older, forced
        self._ended: list[Answer] = []
        self._begun: set[int] = set()  # answers whose role was sent

    def choice(self, answer: Answer) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "finish_reason": self._reason(answer),
            "index": answer.index,
            "message": self._renamed(message(answer)) | self._cut(answer),
            **answer.mark,
        }
        if (logprobs := self.logprobs(answer, answer.chosen)) is not None:
            choice["logprobs"] = logprobs
        return choice

    def _reason(self, answer: Answer) -> str:
        reason = finish_reason(answer)
        return "function_call" if self._older and reason == "tool_calls" else reason

    def _cut(self, answer: Answer) -> dict[str, Any]:
        """Return the call of a forced function that was cut before its name."""
        if not self._forced or answer.said.calls or not answer.is_cut:
            return {}
        return {"content": None, "function_call": {"name": self._forced, "arguments": ""}}

    def _renamed(self, said: dict[str, Any]) -> dict[str, Any]:
        """Return a message or a part of it with its call in the field that the client reads."""
        if not self._older or "tool_calls" not in said:
            return said
        call = said.pop("tool_calls")[0]
        keys = call.keys() & {"validation_error"}
        return {**said, "function_call": call.get("function", {}) | {k: call[k] for k in keys}}

    def _chunk(self, answer: Answer, delta: Any, reason: str | None = None) -> dict[str, Any]:
        choice = {"finish_reason": reason, "index": answer.index, "delta": delta}
        return self.body([choice], True)

    def progress(self, answer: Answer) -> list[Event]:
        self.note(answer)
        chunk = self._chunk(answer, {"role": "assistant", "content": None})
        return [Event(with_progress(answer, chunk))]

    def partial(self, answer: Answer, change: Change) -> list[Event]:
        self.note(answer)
        start = self._start(answer)
        said = [self._renamed(delta_of(one)) for one in change.deltas]
        logprobs = self.logprobs(answer, change.chosen)
        if logprobs is not None and not said:
            said.append({"content": ""})  # what bears their probabilities
        chunks = [self._chunk(answer, one) for one in said]
        if logprobs is not None:
            chunks[-1]["choices"][0]["logprobs"] = logprobs
        if chunks and answer.task.timings_per_token:
            chunks[-1]["timings"] = timings(answer)
        return [Event(chunk) for chunk in (*start, *chunks)]

    def _start(self, answer: Answer) -> list[dict[str, Any]]:
        """Return the chunk with the role, once per answer."""
        if answer.index in self._begun:
            return []
        self._begun.add(answer.index)
        return [self._chunk(answer, {"role": "assistant", "content": None})]

    def final(self, answer: Answer) -> list[Event]:
        self._ended.append(answer)
        cut = [self._chunk(answer, one) for one in [self._cut(answer)] if one]
        chunks = [*self._start(answer), *cut, self._chunk(answer, {}, self._reason(answer))]
        chunks[-1]["choices"][0] |= answer.mark
        if answer.task.verbose:
            chunks[-1]["__verbose"] = whole(self.state, answer)
        if self.is_last(answer) and answer.task.include_usage:
            chunks.append({**self.body([], True), "usage": usage(self._ended)})
        chunks[-1]["timings"] = timings(answer)
        return [Event(chunk) for chunk in chunks]


def message(answer: Answer) -> dict[str, Any]:
    """A whole message as OpenAI has it; thoughts beside it, as DeepSeek has them."""
    said: Said = answer.said
    found: dict[str, Any] = {"role": "assistant", "content": said.content}
    if said.reasoning:
        found["reasoning_content"] = said.reasoning
    if said.calls:
        found["tool_calls"] = calls(said)
        found["content"] = said.content or None
    return found


def calls(said: Said) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "id": call.id,
            "function": {"name": call.name, "arguments": call.arguments},
            **call.mark,
        }
        for call in said.calls
    ]


def delta_of(delta: Delta) -> dict[str, Any]:
    """server-chat.cpp:server_chat_msg_diff_to_json_oaicompat"""
    found: dict[str, Any] = {}
    if delta.reasoning:
        found["reasoning_content"] = delta.reasoning
    if delta.content:
        found["content"] = delta.content
    if delta.index is not None:
        call: dict[str, Any] = {"index": delta.index}
        if delta.id:
            call |= {"id": delta.id, "type": "function"}
        function = {"name": delta.name} if delta.name else {}
        if delta.arguments or delta.name or delta.error:
            function["arguments"] = delta.arguments
        call |= {"validation_error": delta.error} if delta.error else {}
        found["tool_calls"] = [{**call, "function": function} if function else call]
    return found
