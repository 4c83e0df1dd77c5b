"""Common parts of OpenAI's formats (server-task.cpp:usage_json_oaicompat)."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llama_py_server.stream.writers.native import reply_body
from llama_py_server.stream.writers.probabilities import (
    CompletionLogprobs,
    drop_end_token,
    probabilities,
    score_prompt,
)
from llama_py_server.stream.writers.progress import timings, with_progress
from llama_py_server.wire.ids import new_id
from llama_py_server.wire.sse import DONE, EVENTS, Frame

if TYPE_CHECKING:
    from llama_py_server.models.state import ModelState
    from llama_py_server.stream.reply import Change, ChosenToken, Reply
    from llama_py_server.wire.errors import HTTPError


def usage(replies: Sequence[Reply]) -> dict[str, Any]:
    """Return token counts; several replies to one prompt count it once."""
    prompts = {id(a.prompt): a for a in reversed(replies)}.values()
    n_prompt, n_cached = sum(a.n_prompt for a in prompts), sum(a.n_cached for a in prompts)
    n = sum(a.n_generated for a in replies)
    return {
        "completion_tokens": n,
        "prompt_tokens": n_prompt,
        "total_tokens": n + n_prompt,
        "prompt_tokens_details": {"cached_tokens": n_cached},
        "completion_tokens_details": {"reasoning_tokens": sum(a.n_reasoning for a in replies)},
    }


class OpenAIWriter(ABC):
    """Base class of writers with choices. `kind`: name of an object, and of a streamed one."""

    kind = ("", "")
    end, form = DONE, EVENTS

    def __init__(self, state: ModelState) -> None:
        self.state, self.id = state, new_id("chatcmpl-")
        self._left: set[int] = set()  # replies that have not ended

    def body(self, choices: list[Any], stream: bool) -> dict[str, Any]:
        return {
            "choices": choices,
            "created": int(time.time()),
            "model": self.state.name,
            "system_fingerprint": self.state.build,
            "object": self.kind[stream],
            "id": self.id,
        }

    def logprobs(self, reply: Reply, chosen: Sequence[ChosenToken]) -> Any:
        """Return the tokens of the text without the end token, or null, like OpenAI."""
        shown = drop_end_token(self.state.tokenizer, chosen)
        if not shown:
            return None
        after = reply.request.post_sampling_probs
        return {"content": probabilities(self.state.tokenizer, shown, after)}

    @abstractmethod
    def choice(self, reply: Reply) -> dict[str, Any]:
        """Return the choice of a reply that has ended."""

    def write_body(self, replies: Sequence[Reply]) -> Any:
        body = self.body([self.choice(a) for a in replies], False)
        body |= {"usage": usage(replies), "timings": timings(replies[0])}
        if replies[0].delivery.verbose:
            body["__verbose"] = reply_body(self.state, replies[0])
        return body

    def note(self, reply: Reply) -> None:
        """Note a reply that is being streamed."""
        if not reply.has_ended:
            self._left.add(reply.index)

    def is_last(self, reply: Reply) -> bool:
        """Return True if all replies of a stream have ended with this one."""
        self._left.discard(reply.index)
        return not self._left

    def error(self, error: HTTPError) -> Frame:
        return Frame({"error": error.body})


class CompletionWriter(OpenAIWriter):
    """Writer of /v1/completions responses."""

    kind = ("text_completion", "text_completion")

    def __init__(self, state: ModelState) -> None:
        super().__init__(state)
        self._completed: dict[int, CompletionLogprobs] = {}  # keys: numbers of replies
        self._echoing: set[int] = set()  # replies with a sent prompt

    def logprobs(
        self, reply: Reply, chosen: Sequence[ChosenToken], before: Sequence[ChosenToken] = ()
    ) -> Any:
        """Return llama-server's list of the chosen tokens and OpenAI's lists of all tokens."""
        if not chosen and not before:
            return None
        if reply.index not in self._completed:
            text = prompt_text(self.state, reply.prompt)
            self._completed[reply.index] = CompletionLogprobs(self.state.tokenizer, len(text))
        content = super().logprobs(reply, chosen) or {"content": []}
        return content | self._completed[reply.index].lists([*before, *chosen])

    def _echo_prompt(self, reply: Reply) -> tuple[str, list[ChosenToken]]:
        """Return the prompt and the probabilities of its tokens, once per reply."""
        if not reply.delivery.echo or reply.index in self._echoing:
            return "", []
        self._echoing.add(reply.index)
        text, t = prompt_text(self.state, reply.prompt), self.state.tokenizer
        if reply.request.params.logprobs is None:
            return text, []
        found = score_prompt(t, reply)
        self._completed[reply.index] = CompletionLogprobs.for_prompt(t, text, found)
        return text, found

    def choice(self, reply: Reply) -> dict[str, Any]:
        text, before = self._echo_prompt(reply)
        return {
            "text": text + reply.text,
            "index": reply.index,
            "logprobs": self.logprobs(reply, reply.chosen, before),
            "finish_reason": finish_reason(reply),
            **reply.mark,
        }

    def progress(self, reply: Reply) -> list[Frame]:
        self.note(reply)
        choice = {"text": "", "index": reply.index, "logprobs": None, "finish_reason": None}
        return [Frame(with_progress(reply, self.body([choice], True)))]

    def partial(self, reply: Reply, change: Change) -> list[Frame]:
        self.note(reply)
        chunk = self._chunk(reply, change.text, change.chosen)
        if reply.delivery.timings_per_token:
            chunk["timings"] = timings(reply)
        if reply.delivery.verbose:
            chunk["__verbose"] = {"tokens": change.tokens, "content": change.text}
        return [Frame(chunk)]

    def _chunk(
        self, reply: Reply, text: str, chosen: Sequence[ChosenToken] = (), reason: str | None = None
    ) -> dict[str, Any]:
        prompt, before = self._echo_prompt(reply)
        choice = {
            "text": prompt + text,
            "index": reply.index,
            "logprobs": self.logprobs(reply, chosen, before),
            "finish_reason": reason,
        }
        return self.body([choice], True)

    def final(self, reply: Reply) -> list[Frame]:
        self.is_last(reply)
        chunk = self._chunk(reply, "", reason=finish_reason(reply))
        chunk["choices"][0] |= reply.mark
        chunk |= {"usage": usage([reply]), "timings": timings(reply)}
        if reply.delivery.verbose:
            chunk["__verbose"] = reply_body(self.state, reply)
        return [Frame(chunk)]


def prompt_text(state: ModelState, ids: Sequence[int]) -> str:
    """Return the text of a prompt without the BOS token and without images."""
    tokens = (id for id in ids if id >= 0)
    return state.tokenizer.detokenize(tokens, special=True, remove_special=True)


def finish_reason(reply: Reply) -> str:
    """Return `tool_calls` for tool calls, `length` if the reply was cut, else `stop`."""
    if reply.is_cut:
        return "length"
    return "tool_calls" if reply.said.calls else "stop"
