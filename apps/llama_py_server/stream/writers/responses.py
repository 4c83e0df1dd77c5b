"""Writer for OpenAI's /v1/responses (server-task.cpp:to_json_oaicompat_resp)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llama_py_server.stream.writers.probabilities import drop_end_token, probabilities
from llama_py_server.stream.writers.progress import timings, with_progress
from llama_py_server.wire.ids import new_id
from llama_py_server.wire.sse import EVENTS, Frame

if TYPE_CHECKING:
    from llama_py.chat.stream import AnswerDelta
    from llama_py_server.models.state import ModelState
    from llama_py_server.stream.reply import Change, ChosenToken, Reply, ReplyCall
    from llama_py_server.wire.body import Body
    from llama_py_server.wire.errors import HTTPError

Item = dict[str, Any]

# Fields of a request that a response repeats, with the values of requests without them.
_ECHOED: Item = {
    "instructions": None,
    "metadata": {},
    "tool_choice": "auto",
    "tools": [],
    "max_output_tokens": None,
    "max_tool_calls": None,
    "reasoning": {},
    "text": {},
    "user": None,
    "safety_identifier": None,
    "prompt_cache_key": None,
    "top_logprobs": None,
}


class ResponsesWriter:
    """An output of items, one after the other: reasoning, a message, each tool call."""

    end, form = b"", EVENTS

    def __init__(self, state: ModelState, body: Body) -> None:
        self.state, self.asked, self.created = state, body, int(time.time())
        self.id, self.ids = new_id("resp_"), {"reasoning": new_id("rs_"), "message": new_id("msg_")}
        self._sequence = -1
        self._begun = False
        self._kinds: list[str] = []  # types of the items, in order
        self._done: list[Item] = []

    def write_body(self, replies: Sequence[Reply]) -> Any:
        return self._response(replies[0], self._items(replies[0]))

    def _response(self, reply: Reply, output: list[Item]) -> dict[str, Any]:
        cut = reply.is_cut
        n, n_prompt = reply.n_generated, reply.n_prompt
        return {
            **self._head(reply, "incomplete" if cut else "completed"),
            "completed_at": None if cut else int(time.time()),
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": output,
            "usage": {
                "input_tokens": n_prompt,
                "output_tokens": n,
                "total_tokens": n + n_prompt,
                "input_tokens_details": {"cached_tokens": reply.n_cached, "cache_write_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": reply.n_reasoning},
            },
        }

    def _head(self, reply: Reply, status: str) -> dict[str, Any]:
        asked, sampling = self.asked, reply.request.params
        given = {key: v for key, v in asked.items() if key in _ECHOED and v is not None}
        parallel = asked.get("parallel_tool_calls")
        if not isinstance(parallel, bool):
            parallel = self.state.template.caps.parallel_tool_calls
        return {
            **_ECHOED,
            **given,
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "model": self.state.name,
            "output": [],
            "error": None,
            "incomplete_details": None,
            "temperature": sampling.temp,
            "top_p": sampling.top_p,
            "parallel_tool_calls": parallel,
            "previous_response_id": None,
            "store": False,
            "background": False,
            "truncation": "auto" if self.state.options.generate.context_shift else "disabled",
        }

    def _items(self, reply: Reply) -> list[Item]:
        """Return the final output items, in the order of arrival."""
        said = reply.said
        kinds = self._kinds or [
            *(["reasoning"] if said.reasoning else []),
            *(["message"] if said.content else []),
            *(f"call {i}" for i in range(len(said.calls))),
        ]
        last = len(kinds) - 1
        return [self._item(k, reply, reply.is_cut and i == last) for i, k in enumerate(kinds)]

    def _item(self, kind: str, reply: Reply, cut: bool) -> Item:
        said, status = reply.said, "incomplete" if cut else "completed"
        if kind == "reasoning":
            return self._thoughts([{"text": said.reasoning, "type": "reasoning_text"}], status)
        if kind == "message":
            logprobs = self._logprobs(reply, reply.of_content)
            return self._message([part(said.content, logprobs)], status) | reply.mark
        return _call(said.calls[int(kind.removeprefix("call "))], status)

    def _logprobs(self, reply: Reply, chosen: Sequence[ChosenToken]) -> list[Item]:
        after = reply.request.post_sampling_probs
        t = self.state.tokenizer
        return probabilities(t, drop_end_token(t, chosen), after)

    def _thoughts(self, content: list[Item], status: str = "in_progress") -> Item:
        return {
            "id": self.ids["reasoning"],
            "summary": [],
            "type": "reasoning",
            "content": content,
            "encrypted_content": "",
            "status": status,
        }

    def _message(self, content: list[Item], status: str = "in_progress") -> Item:
        return {
            "content": content,
            "id": self.ids["message"],
            "role": "assistant",
            "status": status,
            "type": "message",
        }

    def _event(self, kind: str, **what: Any) -> Frame:
        self._sequence += 1
        return Frame({"type": kind, "sequence_number": self._sequence, **what}, kind)

    def _start(self, reply: Reply) -> list[Frame]:
        if self._begun:
            return []
        self._begun = True
        kinds = ("response.created", "response.in_progress")
        return [self._event(kind, response=self._head(reply, "in_progress")) for kind in kinds]

    def progress(self, reply: Reply) -> list[Frame]:
        found = self._start(reply) or [
            self._event("response.in_progress", response=self._head(reply, "in_progress"))
        ]
        last = found[-1]
        return [*found[:-1], Frame(with_progress(reply, last.data), last.name)]

    def partial(self, reply: Reply, change: Change) -> list[Frame]:
        found, logprobs = self._start(reply), self._logprobs(reply, change.of_content)
        for delta in change.deltas:
            found += self._write_delta(delta, reply, logprobs)
            logprobs = [] if delta.content else logprobs
        if found and change.deltas and reply.delivery.timings_per_token:
            found[-1].data["timings"] = timings(reply)
        return found

    def _write_delta(self, delta: AnswerDelta, reply: Reply, logprobs: list[Item]) -> list[Frame]:
        found = []
        if delta.reasoning:
            found += self._open_item("reasoning", self._thoughts([]), reply)
            at = {**self._item_position(), "content_index": 0, "item_id": self.ids["reasoning"]}
            kind = "response.reasoning_text.delta"
            found.append(self._event(kind, **at, delta=delta.reasoning))
        if delta.content:
            new = "message" not in self._kinds
            found += self._open_item("message", self._message([]), reply)
            where = {**self._item_position(), "content_index": 0, "item_id": self.ids["message"]}
            if new:
                added = "response.content_part.added"
                found.append(self._event(added, **where, part=part("", [])))
            what = {"delta": delta.content, "logprobs": logprobs}
            found.append(self._event("response.output_text.delta", **where, **what))
        if delta.index is not None:
            call = reply.said.calls[delta.index]
            began = {**_call(call, "in_progress"), "arguments": ""}
            found += self._open_item(f"call {delta.index}", began, reply)
            if delta.arguments:
                kind = "response.function_call_arguments.delta"
                where = {**self._item_position(), "item_id": f"fc_{call.id}"}
                found.append(self._event(kind, **where, delta=delta.arguments))
        return found

    def _item_position(self) -> dict[str, int]:
        return {"output_index": len(self._kinds) - 1}

    def _open_item(self, kind: str, item: Item, reply: Reply) -> list[Frame]:
        if kind in self._kinds:
            return []
        found = self._close_item(reply)
        self._kinds.append(kind)
        added = self._event("response.output_item.added", **self._item_position(), item=item)
        return [*found, added]

    def _close_item(self, reply: Reply, cut: bool = False) -> list[Frame]:
        """Return frames that end the last item."""
        if len(self._done) == len(self._kinds):
            return []
        kind = self._kinds[-1]
        item, where = self._item(kind, reply, cut), self._item_position()
        self._done.append(item)
        found = []
        if kind == "message":
            at = {**where, "content_index": 0, "item_id": item["id"]}
            text = item["content"][0]
            what = {"text": text["text"], "logprobs": text["logprobs"]}
            found = [
                self._event("response.output_text.done", **at, **what),
                self._event("response.content_part.done", **at, part=text),
            ]
        elif kind != "reasoning":
            done, at = "response.function_call_arguments.done", {**where, "item_id": item["id"]}
            more = {"arguments": item["arguments"], "name": item["name"]}
            found = [self._event(done, **at, **more)]
        return [*found, self._event("response.output_item.done", **where, item=item)]

    def final(self, reply: Reply) -> list[Frame]:
        found = [*self._start(reply), *self._close_item(reply, reply.is_cut)]
        response = self._response(reply, self._items(reply))
        end = self._event(f"response.{response['status']}", response=response)
        end.data["timings"] = timings(reply)
        return [*found, end]

    def error(self, error: HTTPError) -> Frame:
        return self._event("error", error=error.body, message=error.message, code=error.kind)


def part(text: str, logprobs: list[Item]) -> Item:
    return {"type": "output_text", "annotations": [], "logprobs": logprobs, "text": text}


def _call(call: ReplyCall, status: str) -> Item:
    return {
        "id": f"fc_{call.id}",
        "type": "function_call",
        "status": status,
        "arguments": call.arguments,
        "call_id": f"call_{call.id}",
        "name": call.name,
        **call.mark,
    }
