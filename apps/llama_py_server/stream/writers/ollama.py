"""Writer for Ollama's /api/chat and /api/generate: records, in a stream one per line
(api/types.go)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from llama_py_server.stream.writers.anthropic import complete_part
from llama_py_server.stream.writers.probabilities import drop_end_token, probabilities
from llama_py_server.wire.sse import LINES, Frame

if TYPE_CHECKING:
    from llama_py_server.models.state import ModelState
    from llama_py_server.stream.reply import Change, ChosenToken, Reply, ReplyCall
    from llama_py_server.wire.errors import HTTPError

Record = dict[str, Any]


def now() -> str:
    """Return the time in the form of Go."""
    return datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True)
class OllamaRequest:
    """A request.

    name     the model's name in the request
    is_chat  it is for /api/chat
    began, loaded  `time.monotonic_ns()` of its arrival, and of the loaded model
    """

    name: str
    is_chat: bool
    began: int
    loaded: int

    def record(self, reason: str = "", **fields: Any) -> Record:
        """Return a record; reason: reason of the end, or empty before the end."""
        text = fields.pop("text", "")
        more = {name: value for name, value in fields.items() if value}
        if self.is_chat:
            inside = {name: more.pop(name) for name in ("thinking", "tool_calls") if name in more}
            said: Record = {"message": {"role": "assistant", "content": text, **inside}}
        else:
            said = {"response": text}
        found = {"model": self.name, "created_at": now(), **said, "done": bool(reason)}
        return found | ({"done_reason": reason} if reason else {}) | more

    def durations(self) -> Record:
        """Return nanoseconds of the request until now, and until its model was loaded."""
        passed = time.monotonic_ns() - self.began
        return {"total_duration": passed, "load_duration": self.loaded - self.began}


class OllamaWriter:
    """Records of parts of a message, and a last record with counts and durations."""

    end, form = b"", LINES

    def __init__(self, state: ModelState, asked: OllamaRequest) -> None:
        self.state, self.asked = state, asked
        self._n_calls = 0  # tool calls that were sent

    def write_body(self, replies: Sequence[Reply]) -> Any:
        reply = replies[0]
        said, is_message = reply.said, reply.request.chat is not None
        return self.asked.record(
            _reason(reply),
            text=said.content if is_message else reply.text,
            thinking=said.reasoning,
            tool_calls=[_call(i, call) for i, call in enumerate(said.calls)],
            logprobs=self._logprobs(reply, reply.chosen),
            **self._end(reply),
        )

    def progress(self, reply: Reply) -> list[Frame]:
        return []

    def partial(self, reply: Reply, change: Change) -> list[Frame]:
        is_message = reply.request.chat is not None
        text = "".join(d.content for d in change.deltas) if is_message else change.text
        thinking = "".join(delta.reasoning for delta in change.deltas)
        logprobs = self._logprobs(reply, change.chosen)
        calls = self._take_calls(reply, len(reply.said.calls) - 1)
        if not (text or thinking or calls or logprobs):
            return []
        more: Record = {"thinking": thinking, "tool_calls": calls, "logprobs": logprobs}
        return [Frame(self.asked.record(text=text, **more))]

    def _take_calls(self, reply: Reply, until: int) -> list[Record]:
        """Return the complete calls that were not sent: all before a later call begins."""
        begin, self._n_calls = self._n_calls, max(self._n_calls, until)
        calls = reply.said.calls[begin : self._n_calls]
        return [_call(begin + i, call) for i, call in enumerate(calls)]

    def final(self, reply: Reply) -> list[Frame]:
        calls = self._take_calls(reply, len(reply.said.calls))
        found = [Frame(self.asked.record(tool_calls=calls))] if calls else []
        return [*found, Frame(self.asked.record(_reason(reply), **self._end(reply)))]

    def error(self, error: HTTPError) -> Frame:
        return Frame({"error": error.message})

    def _end(self, reply: Reply) -> Record:
        t = reply.timings
        found: Record = {
            **self.asked.durations(),
            "prompt_eval_count": t.n_prompt,
            "prompt_eval_duration": int(t.prompt_seconds * 1e9),
            "eval_count": t.n_gen,
            "eval_duration": int(t.gen_seconds * 1e9),
            **reply.mark,
        }
        if not self.asked.is_chat and reply.request.chat is not None:  # not of raw prompts
            ids = (id for id in reply.tokens if not self.state.tokenizer.is_eog(id))
            found["context"] = [*(id for id in reply.prompt if id >= 0), *ids]
        return found

    def _logprobs(self, reply: Reply, chosen: Sequence[ChosenToken]) -> list[Record]:
        tokenizer = self.state.tokenizer
        found = probabilities(tokenizer, drop_end_token(tokenizer, chosen), False)
        return [
            _probability(one) | {"top_logprobs": [_probability(top) for top in one["top_logprobs"]]}
            for one in found
        ]


def _probability(one: Record) -> Record:
    return {name: one[name] for name in ("token", "logprob", "bytes")}


def _reason(reply: Reply) -> str:
    return "length" if reply.is_cut else "stop"


def _call(index: int, call: ReplyCall) -> Record:
    function = {"index": index, "name": call.name, "arguments": arguments(call)}
    return {"id": f"call_{call.id}", "function": function, **call.mark}


def arguments(call: ReplyCall) -> Record:
    """Return a call's arguments; of a cut call the complete members."""
    found = complete_part(call.arguments)
    return found if isinstance(found, dict) else {}
