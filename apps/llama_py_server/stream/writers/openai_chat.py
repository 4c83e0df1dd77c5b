"""Writer for /v1/chat/completions (server-task.cpp:to_json_oaicompat_chat)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_py_server.stream.writers.native import reply_body
from llama_py_server.stream.writers.openai import OpenAIWriter, finish_reason, usage
from llama_py_server.stream.writers.progress import timings, with_progress
from llama_py_server.wire.sse import Frame

if TYPE_CHECKING:
    from llama_py.chat.stream import AnswerDelta
    from llama_py_server.models.state import ModelState
    from llama_py_server.stream.reply import Change, Reply, ReplyMessage


class ChatWriter(OpenAIWriter):
    """Writer of messages and their deltas.

    older: calls are in `function_call`;  forced: the function that must be called
    """

    kind = ("chat.completion", "chat.completion.chunk")

    def __init__(self, state: ModelState, older: bool = False, forced: str = "") -> None:
        super().__init__(state)
        self._older, self._forced = older, forced
        self._ended: list[Reply] = []
        self._begun: set[int] = set()  # replies with a sent role

    def choice(self, reply: Reply) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "finish_reason": self._reason(reply),
            "index": reply.index,
            "message": self._rename_call(message(reply)) | self._cut(reply),
            **reply.mark,
        }
        if (logprobs := self.logprobs(reply, reply.chosen)) is not None:
            choice["logprobs"] = logprobs
        return choice

    def _reason(self, reply: Reply) -> str:
        reason = finish_reason(reply)
        return "function_call" if self._older and reason == "tool_calls" else reason

    def _cut(self, reply: Reply) -> dict[str, Any]:
        """Return the call of a forced function that was cut before its name."""
        if not self._forced or reply.said.calls or not reply.is_cut:
            return {}
        return {"content": None, "function_call": {"name": self._forced, "arguments": ""}}

    def _rename_call(self, said: dict[str, Any]) -> dict[str, Any]:
        """Return a message, or a part of a message, with its call in the client's field."""
        if not self._older or "tool_calls" not in said:
            return said
        call = said.pop("tool_calls")[0]
        keys = call.keys() & {"validation_error"}
        return {**said, "function_call": call.get("function", {}) | {k: call[k] for k in keys}}

    def _chunk(self, reply: Reply, delta: Any, reason: str | None = None) -> dict[str, Any]:
        choice = {"finish_reason": reason, "index": reply.index, "delta": delta}
        return self.body([choice], True)

    def progress(self, reply: Reply) -> list[Frame]:
        self.note(reply)
        chunk = self._chunk(reply, {"role": "assistant", "content": None})
        return [Frame(with_progress(reply, chunk))]

    def partial(self, reply: Reply, change: Change) -> list[Frame]:
        self.note(reply)
        start = self._start(reply)
        said = [self._rename_call(write_delta(one)) for one in change.deltas]
        logprobs = self.logprobs(reply, change.chosen)
        if logprobs is not None and not said:
            said.append({"content": ""})  # carries their probabilities
        chunks = [self._chunk(reply, one) for one in said]
        if logprobs is not None:
            chunks[-1]["choices"][0]["logprobs"] = logprobs
        if chunks and reply.delivery.timings_per_token:
            chunks[-1]["timings"] = timings(reply)
        return [Frame(chunk) for chunk in (*start, *chunks)]

    def _start(self, reply: Reply) -> list[dict[str, Any]]:
        """Return the chunk with the role, once per reply."""
        if reply.index in self._begun:
            return []
        self._begun.add(reply.index)
        return [self._chunk(reply, {"role": "assistant", "content": None})]

    def final(self, reply: Reply) -> list[Frame]:
        self._ended.append(reply)
        cut = [self._chunk(reply, one) for one in [self._cut(reply)] if one]
        chunks = [*self._start(reply), *cut, self._chunk(reply, {}, self._reason(reply))]
        chunks[-1]["choices"][0] |= reply.mark
        if reply.delivery.verbose:
            chunks[-1]["__verbose"] = reply_body(self.state, reply)
        if self.is_last(reply) and reply.delivery.include_usage:
            chunks.append({**self.body([], True), "usage": usage(self._ended)})
        chunks[-1]["timings"] = timings(reply)
        return [Frame(chunk) for chunk in chunks]


def message(reply: Reply) -> dict[str, Any]:
    """Return a whole message in OpenAI's form, with reasoning in DeepSeek's field."""
    said: ReplyMessage = reply.said
    found: dict[str, Any] = {"role": "assistant", "content": said.content}
    if said.reasoning:
        found["reasoning_content"] = said.reasoning
    if said.calls:
        found["tool_calls"] = calls(said)
        found["content"] = said.content or None
    return found


def calls(said: ReplyMessage) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "id": call.id,
            "function": {"name": call.name, "arguments": call.arguments},
            **call.mark,
        }
        for call in said.calls
    ]


def write_delta(delta: AnswerDelta) -> dict[str, Any]:
    """Return a delta in OpenAI's form (server-chat.cpp:server_chat_msg_diff_to_json_oaicompat)."""
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
