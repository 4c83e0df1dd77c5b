"""Of OpenAI's /v1/responses (server-task.cpp:to_json_oaicompat_resp)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llama_py_server.ids import new_id
from llama_py_server.results.progress import timings, with_progress
from llama_py_server.sse import Event

if TYPE_CHECKING:
    from llama_py.chat.stream import Delta
    from llama_py_server.answer import Answer, Change
    from llama_py_server.errors import HTTPError
    from llama_py_server.messages import Call
    from llama_py_server.state import State

Item = dict[str, Any]


class Responses:
    """An output of items, one after the other: thoughts, a message, each call."""

    end = b""

    def __init__(self, state: State) -> None:
        self.state, self.created = state, int(time.time())
        self.id, self.ids = new_id("resp_"), {"reasoning": new_id("rs_"), "message": new_id("msg_")}
        self._sequence = -1
        self._begun = False
        self._kinds: list[str] = []  # of the items, in their order
        self._done: list[Item] = []

    def whole(self, answers: Sequence[Answer]) -> Any:
        return self._response(answers[0], self._items(answers[0]))

    def _response(self, answer: Answer, output: list[Item]) -> dict[str, Any]:
        cut = answer.stop_type not in ("word", "eos")
        n, n_prompt = answer.n_generated, answer.n_prompt
        return {
            **self._head("incomplete" if cut else "completed"),
            "completed_at": int(time.time()),
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": output,
            "usage": {
                "input_tokens": n_prompt, "output_tokens": n, "total_tokens": n + n_prompt,
                "input_tokens_details": {"cached_tokens": answer.n_cached},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        }  # fmt: skip

    def _head(self, status: str) -> dict[str, Any]:
        return {
            "id": self.id, "object": "response", "created_at": self.created, "status": status,
            "model": self.state.name, "output": [], "error": None, "incomplete_details": None,
            "instructions": None, "metadata": {}, "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": [], "temperature": None, "top_p": None,
        }  # fmt: skip

    def _items(self, answer: Answer) -> list[Item]:
        """The output as it is at the end, in the order in which it came."""
        said = answer.said
        kinds = self._kinds or [
            *(["reasoning"] if said.reasoning else []), *(["message"] if said.content else []),
            *(f"call {i}" for i in range(len(said.calls))),
        ]  # fmt: skip
        return [self._item(kind, answer) for kind in kinds]

    def _item(self, kind: str, answer: Answer) -> Item:
        said = answer.said
        if kind == "reasoning":
            return self._thoughts([{"text": said.reasoning, "type": "reasoning_text"}], True)
        if kind == "message":
            return self._message([part(said.content)], True)
        return _call(said.calls[int(kind.removeprefix("call "))], "completed")

    def _thoughts(self, content: list[Item], done: bool) -> Item:
        return {
            "id": self.ids["reasoning"], "summary": [], "type": "reasoning", "content": content,
            "encrypted_content": "", "status": "completed" if done else "in_progress",
        }  # fmt: skip

    def _message(self, content: list[Item], done: bool) -> Item:
        return {
            "content": content, "id": self.ids["message"], "role": "assistant",
            "status": "completed" if done else "in_progress", "type": "message",
        }  # fmt: skip

    def _event(self, kind: str, **what: Any) -> Event:
        self._sequence += 1
        return Event({"type": kind, "sequence_number": self._sequence, **what}, kind)

    def _start(self) -> list[Event]:
        if self._begun:
            return []
        self._begun = True
        kinds = ("response.created", "response.in_progress")
        return [self._event(kind, response=self._head("in_progress")) for kind in kinds]

    def progress(self, answer: Answer) -> list[Event]:
        found = self._start() or [
            self._event("response.in_progress", response=self._head("in_progress"))
        ]
        last = found[-1]
        return [*found[:-1], Event(with_progress(answer, last.data), last.name)]

    def partial(self, answer: Answer, change: Change) -> list[Event]:
        found = self._start()
        for delta in change.deltas:
            found += self._added(delta, answer)
        if found and change.deltas and answer.task.timings_per_token:
            found[-1].data["timings"] = timings(answer)
        return found

    def _added(self, delta: Delta, answer: Answer) -> list[Event]:
        found = []
        if delta.reasoning:
            found += self._opened("reasoning", self._thoughts([], False), answer)
            found.append(self._text("reasoning_text.delta", self.ids["reasoning"], delta.reasoning))
        if delta.content:
            new = "message" not in self._kinds
            found += self._opened("message", self._message([], False), answer)
            where = {**self._where(), "content_index": 0, "item_id": self.ids["message"]}
            if new:
                added = "response.content_part.added"
                found.append(self._event(added, **where, part=part("")))
            found.append(self._text("output_text.delta", self.ids["message"], delta.content))
        if delta.index is not None:
            call = answer.said.calls[delta.index]
            began = {**_call(call, "in_progress"), "arguments": ""}
            found += self._opened(f"call {delta.index}", began, answer)
            if delta.arguments:
                kind = "response.function_call_arguments.delta"
                where = {**self._where(), "item_id": f"fc_{call.id}"}
                found.append(self._event(kind, **where, delta=delta.arguments))
        return found

    def _text(self, kind: str, id: str, text: str) -> Event:
        more = {"content_index": 0, "item_id": id, "delta": text, "logprobs": []}
        return self._event(f"response.{kind}", **self._where(), **more)

    def _where(self) -> dict[str, int]:
        return {"output_index": len(self._kinds) - 1}

    def _opened(self, kind: str, item: Item, answer: Answer) -> list[Event]:
        if kind in self._kinds:
            return []
        found = self._closed(answer)
        self._kinds.append(kind)
        added = self._event("response.output_item.added", **self._where(), item=item)
        return [*found, added]

    def _closed(self, answer: Answer) -> list[Event]:
        """The end of the item that came last."""
        if len(self._done) == len(self._kinds):
            return []
        kind = self._kinds[-1]
        item, where = self._item(kind, answer), self._where()
        self._done.append(item)
        found = []
        if kind == "message":
            at = {**where, "content_index": 0, "item_id": item["id"]}
            text = item["content"][0]
            found = [
                self._event("response.output_text.done", **at, text=text["text"], logprobs=[]),
                self._event("response.content_part.done", **at, part=text),
            ]
        elif kind != "reasoning":
            done, at = "response.function_call_arguments.done", {**where, "item_id": item["id"]}
            more = {"arguments": item["arguments"], "name": item["name"]}
            found = [self._event(done, **at, **more)]
        return [*found, self._event("response.output_item.done", **where, item=item)]

    def final(self, answer: Answer) -> list[Event]:
        found = [*self._start(), *self._closed(answer)]
        response = self._response(answer, self._items(answer))
        end = self._event("response.completed", response=response)
        end.data["timings"] = timings(answer)
        return [*found, end]

    def error(self, error: HTTPError) -> Event:
        return self._event("error", error=error.body, message=error.message, code=error.kind)


def part(text: str) -> Item:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _call(call: Call, status: str) -> Item:
    return {
        "id": f"fc_{call.id}", "type": "function_call", "status": status,
        "arguments": call.arguments, "call_id": f"call_{call.id}", "name": call.name,
    }  # fmt: skip
