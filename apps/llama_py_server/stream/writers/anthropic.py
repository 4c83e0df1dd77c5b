"""Writer for Anthropic's /v1/messages (server-task.cpp:to_json_anthropic)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from llama_py_server.wire.ids import new_id
from llama_py_server.wire.sse import EVENTS, Frame

if TYPE_CHECKING:
    from llama_py.chat.stream import AnswerDelta
    from llama_py_server.models.state import ModelState
    from llama_py_server.stream.reply import Change, Reply, ReplyCall
    from llama_py_server.wire.errors import HTTPError


class AnthropicWriter:
    """Messages of blocks, one after the other: reasoning, text, each tool call."""

    end, form = b"", EVENTS

    def __init__(self, state: ModelState) -> None:
        self.state, self.id = state, new_id("msg_")
        self._begun = False
        self._n = -1  # number of the current or last block
        self._open = ""  # type of that block: "thinking", "text" or a call's number

    def write_body(self, replies: Sequence[Reply]) -> Any:
        reply = replies[0]
        said, blocks = reply.said, []
        if said.reasoning:
            blocks.append({"type": "thinking", "thinking": said.reasoning, "signature": ""})
        if said.content:
            blocks.append({"type": "text", "text": said.content})
        blocks += [_block(call) for call in said.calls]
        return {
            **self._message(blocks, reply),
            "stop_reason": stop_reason(reply),
            "stop_sequence": reply.stopping_word or None,
            **reply.mark,
        }

    def _message(self, blocks: list[Any], reply: Reply, start: bool = False) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": blocks,
            "model": self.state.name,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "cache_read_input_tokens": reply.n_cached,
                "input_tokens": reply.n_prompt - reply.n_cached,
                "output_tokens": 0 if start else reply.n_generated,
            },
        }

    def progress(self, reply: Reply) -> list[Frame]:
        return [_event("ping")]

    def partial(self, reply: Reply, change: Change) -> list[Frame]:
        found = self._start(reply)
        for delta in change.deltas:
            found += self._write_delta(delta)
        return found

    def _start(self, reply: Reply) -> list[Frame]:
        if self._begun:
            return []
        self._begun = True
        return [_event("message_start", message=self._message([], reply, start=True))]

    def _write_delta(self, delta: AnswerDelta) -> list[Frame]:
        found = []
        if delta.reasoning:
            found += self._open_block("thinking", {"type": "thinking", "thinking": ""})
            found.append(self._delta("thinking_delta", thinking=delta.reasoning))
        if delta.content:
            found += self._open_block("text", {"type": "text", "text": ""})
            found.append(self._delta("text_delta", text=delta.content))
        if delta.index is not None and not delta.error:  # an error may concern an earlier block
            block = {"type": "tool_use", "id": delta.id, "name": delta.name, "input": {}}
            found += self._open_block(f"call {delta.index}", block)
            if delta.arguments:
                found.append(self._delta("input_json_delta", partial_json=delta.arguments))
        return found

    def _open_block(self, kind: str, block: dict[str, Any]) -> list[Frame]:
        """Return frames that end another block and start this one, unless it is open."""
        if kind == self._open:
            return []
        found = self._close_block()
        self._n, self._open = self._n + 1, kind
        start = _event("content_block_start", index=self._n, content_block=block)
        return [*found, start]

    def _close_block(self) -> list[Frame]:
        if not self._open:
            return []
        signed = [self._delta("signature_delta", signature="")] if self._open == "thinking" else []
        self._open = ""
        return [*signed, _event("content_block_stop", index=self._n)]

    def _delta(self, kind: str, **what: Any) -> Frame:
        return _event("content_block_delta", index=self._n, delta={"type": kind, **what})

    def final(self, reply: Reply) -> list[Frame]:
        delta = {"stop_reason": stop_reason(reply), "stop_sequence": reply.stopping_word or None}
        usage = {"output_tokens": reply.n_generated}
        errors = [{"id": call.id, **call.mark} for call in reply.said.calls if call.error]
        more = reply.mark | ({"validation_errors": errors} if errors else {})
        end = _event("message_delta", delta=delta, usage=usage, **more)
        return [*self._start(reply), *self._close_block(), end, _event("message_stop")]

    def error(self, error: HTTPError) -> Frame:
        return Frame({"type": "error", "error": error.body}, "error")


def stop_reason(reply: Reply) -> str:
    if reply.is_cut:
        return "max_tokens"
    if reply.said.calls:
        return "tool_use"
    return "stop_sequence" if reply.stopping_word in reply.request.params.stop else "end_turn"


def _block(call: ReplyCall) -> dict[str, Any]:
    given = complete_part(call.arguments)
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": given, **call.mark}


def complete_part(text: str) -> Any:
    """Return the complete members and items of a JSON object that may be cut.

    Anthropic's client makes the same object of the deltas of a stream.
    """
    ends, closers, before = [(0, "{}")], "", ""  # ends of values, and the brackets that close there
    for one in _TOKENS.finditer(text):
        token = one[0]
        if token == '"':  # a cut string
            break
        if token in "{[":
            closers = ("}" if token == "{" else "]") + closers
        elif token in "}]":
            closers = closers[1:]
        if token not in ",:" and (token in "{}]" or before == ":" or closers[:1] == "]"):
            ends = [*ends[-1:], (one.end(), closers)]
        before = token
    for end, rest in reversed(ends):
        with suppress(ValueError, RecursionError):  # a cut number or word
            return json.loads(text[:end] + rest)
    return {}


_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:"]|[^\s{}\[\],:"]+', re.S)


def _event(kind: str, **what: Any) -> Frame:
    return Frame({"type": kind, **what}, kind)
