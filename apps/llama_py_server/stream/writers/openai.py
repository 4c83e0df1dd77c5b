"""What all forms of OpenAI's have in common (server-task.cpp:usage_json_oaicompat)."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llama_py_server.stream.writers.native import whole
from llama_py_server.stream.writers.probabilities import (
    Completed,
    probabilities,
    scored,
    without_end,
)
from llama_py_server.stream.writers.progress import timings, with_progress
from llama_py_server.wire.ids import new_id
from llama_py_server.wire.sse import DONE, Event

if TYPE_CHECKING:
    from llama_py_server.models.state import State
    from llama_py_server.stream.reply import Answer, Change, Chosen
    from llama_py_server.wire.errors import HTTPError


def usage(answers: Sequence[Answer]) -> dict[str, Any]:
    """Numbers of tokens. Several answers to one prompt read it once."""
    prompts = {id(a.prompt): a for a in reversed(answers)}.values()
    n_prompt, n_cached = sum(a.n_prompt for a in prompts), sum(a.n_cached for a in prompts)
    n = sum(a.n_generated for a in answers)
    return {
        "completion_tokens": n,
        "prompt_tokens": n_prompt,
        "total_tokens": n + n_prompt,
        "prompt_tokens_details": {"cached_tokens": n_cached},
        "completion_tokens_details": {"reasoning_tokens": sum(a.n_reasoning for a in answers)},
    }


class OpenAI(ABC):
    """Base of what writes choices. `kind`: what an object is called, and one of a stream."""

    kind = ("", "")
    end = DONE

    def __init__(self, state: State) -> None:
        self.state, self.id = state, new_id("chatcmpl-")
        self._left: set[int] = set()  # answers that have not ended

    def body(self, choices: list[Any], stream: bool) -> dict[str, Any]:
        return {
            "choices": choices,
            "created": int(time.time()),
            "model": self.state.name,
            "system_fingerprint": self.state.build,
            "object": self.kind[stream],
            "id": self.id,
        }

    def logprobs(self, answer: Answer, chosen: Sequence[Chosen]) -> Any:
        """Return the tokens of the text without the end token; null for none, as at OpenAI."""
        shown = without_end(self.state.tokenizer, chosen)
        if not shown:
            return None
        after = answer.task.post_sampling_probs
        return {"content": probabilities(self.state.tokenizer, shown, after)}

    @abstractmethod
    def choice(self, answer: Answer) -> dict[str, Any]:
        """Of an answer that has ended."""

    def whole(self, answers: Sequence[Answer]) -> Any:
        body = self.body([self.choice(a) for a in answers], False)
        body |= {"usage": usage(answers), "timings": timings(answers[0])}
        if answers[0].task.verbose:
            body["__verbose"] = whole(self.state, answers[0])
        return body

    def note(self, answer: Answer) -> None:
        """An answer that is being streamed."""
        if not answer.ended:
            self._left.add(answer.index)

    def is_last(self, answer: Answer) -> bool:
        """Whether with this one all answers of a stream have ended."""
        self._left.discard(answer.index)
        return not self._left

    def error(self, error: HTTPError) -> Event:
        return Event({"error": error.body})


class Completion(OpenAI):
    """Of /v1/completions."""

    kind = ("text_completion", "text_completion")

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._completed: dict[int, Completed] = {}  # by the number of the answer
        self._echoing: set[int] = set()  # answers whose prompt was sent

    def logprobs(
        self, answer: Answer, chosen: Sequence[Chosen], before: Sequence[Chosen] = ()
    ) -> Any:
        """Return llama-server's list of the chosen tokens and OpenAI's lists of all tokens."""
        if not chosen and not before:
            return None
        if answer.index not in self._completed:
            text = prompt_text(self.state, answer.prompt)
            self._completed[answer.index] = Completed(self.state.tokenizer, len(text))
        content = super().logprobs(answer, chosen) or {"content": []}
        return content | self._completed[answer.index].lists([*before, *chosen])

    def _echoed(self, answer: Answer) -> tuple[str, list[Chosen]]:
        """Return the prompt and the probabilities of its tokens, once per answer."""
        if not answer.task.echo or answer.index in self._echoing:
            return "", []
        self._echoing.add(answer.index)
        text, t = prompt_text(self.state, answer.prompt), self.state.tokenizer
        if answer.task.logprobs is None:
            return text, []
        found = scored(t, answer)
        self._completed[answer.index] = Completed.of_prompt(t, text, found)
        return text, found

    def choice(self, answer: Answer) -> dict[str, Any]:
        text, before = self._echoed(answer)
        return {
            "text": text + answer.text,
            "index": answer.index,
            "logprobs": self.logprobs(answer, answer.chosen, before),
            "finish_reason": finish_reason(answer),
            **answer.mark,
        }

    def progress(self, answer: Answer) -> list[Event]:
        self.note(answer)
        choice = {"text": "", "index": answer.index, "logprobs": None, "finish_reason": None}
        return [Event(with_progress(answer, self.body([choice], True)))]

    def partial(self, answer: Answer, change: Change) -> list[Event]:
        self.note(answer)
        chunk = self._chunk(answer, change.text, change.chosen)
        if answer.task.timings_per_token:
            chunk["timings"] = timings(answer)
        if answer.task.verbose:
            chunk["__verbose"] = {"tokens": change.tokens, "content": change.text}
        return [Event(chunk)]

    def _chunk(
        self, answer: Answer, text: str, chosen: Sequence[Chosen] = (), reason: str | None = None
    ) -> dict[str, Any]:
        prompt, before = self._echoed(answer)
        choice = {
            "text": prompt + text,
            "index": answer.index,
            "logprobs": self.logprobs(answer, chosen, before),
            "finish_reason": reason,
        }
        return self.body([choice], True)

    def final(self, answer: Answer) -> list[Event]:
        self.is_last(answer)
        chunk = self._chunk(answer, "", reason=finish_reason(answer))
        chunk["choices"][0] |= answer.mark
        chunk |= {"usage": usage([answer]), "timings": timings(answer)}
        if answer.task.verbose:
            chunk["__verbose"] = whole(self.state, answer)
        return [Event(chunk)]


def prompt_text(state: State, ids: Sequence[int]) -> str:
    """Return the text of a prompt without the BOS token; images are left out."""
    tokens = (id for id in ids if id >= 0)
    return state.tokenizer.detokenize(tokens, special=True, remove_special=True)


def finish_reason(answer: Answer) -> str:
    """`tool_calls` where there are some; `length` where the answer was cut."""
    if answer.is_cut:
        return "length"
    return "tool_calls" if answer.said.calls else "stop"
