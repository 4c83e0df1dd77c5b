"""llama-server's own form (server-task.cpp:to_json_non_oaicompat)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llama_py.batch.prompts import MARKER, Mixed
from llama_py_server.stream.writers.probabilities import probabilities
from llama_py_server.stream.writers.progress import timings, with_progress
from llama_py_server.stream.writers.settings import all_settings
from llama_py_server.wire.sse import Event

if TYPE_CHECKING:
    from llama_py_server.models.state import State
    from llama_py_server.stream.reply import Answer, Change
    from llama_py_server.wire.errors import HTTPError


class Native:
    """Of /completion and /infill."""

    end = b""

    def __init__(self, state: State) -> None:
        self.state = state

    def whole(self, answers: Sequence[Answer]) -> Any:
        found = [whole(self.state, answer) for answer in answers]
        return found[0] if len(found) == 1 else found

    def progress(self, answer: Answer) -> list[Event]:
        return [Event(with_progress(answer, self._partial(answer)))]

    def partial(self, answer: Answer, change: Change) -> list[Event]:
        body = self._partial(answer, change.text, change.tokens)
        if answer.task.timings_per_token:
            body["timings"] = timings(answer)
        if change.chosen:
            body["completion_probabilities"] = probabilities(
                self.state.tokenizer, change.chosen, answer.task.post_sampling_probs
            )
        return [Event(body)]

    def _partial(
        self, answer: Answer, text: str = "", tokens: Sequence[int] = ()
    ) -> dict[str, Any]:
        return {
            "index": answer.index,
            "content": text,
            "tokens": list(tokens),
            "stop": False,
            "id_slot": answer.slot,
            "tokens_predicted": answer.n_generated,
            "tokens_evaluated": answer.n_prompt,
        }

    def final(self, answer: Answer) -> list[Event]:
        return [Event(whole(self.state, answer))]

    def error(self, error: HTTPError) -> Event:
        return Event({"error": error.body})


def whole(state: State, answer: Answer) -> dict[str, Any]:
    """An answer that has ended. In a stream its text was sent before."""
    task = answer.task
    body: dict[str, Any] = {
        "index": answer.index,
        "content": "" if task.stream else answer.text,
        "tokens": answer.tokens if task.return_tokens and not task.stream else [],
        "id_slot": answer.slot,
        "stop": True,
        "model": state.name,
        "tokens_predicted": answer.n_generated,
        "tokens_evaluated": answer.n_prompt,
        "generation_settings": all_settings(task, state),
        "prompt": shown(state, answer.prompt),
        "has_new_line": answer.has_new_line,
        "truncated": answer.truncated,
        "stop_type": answer.stop_type,
        "stopping_word": answer.stopping_word,
        "tokens_cached": answer.n_prompt + max(answer.n_generated - 1, 0),
        "timings": timings(answer),
        **answer.mark,
    }
    if answer.chosen and not task.stream:
        body["completion_probabilities"] = probabilities(
            state.tokenizer, answer.chosen, task.post_sampling_probs
        )
    return nested(body, task.response_fields) if task.response_fields else body


def shown(state: State, ids: Sequence[int]) -> str:
    """The text of a prompt's tokens, special ones too; images are marks."""
    tokenizer = state.tokenizer
    media = ids.media if isinstance(ids, Mixed) else {}
    data = b"".join(
        tokenizer.token_to_piece(id, special=True) if id >= 0 else MARKER.encode()
        for i, id in enumerate(ids)
        if id >= 0 or i in media
    )
    return data.decode("utf-8", "replace")


def nested(body: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """Only these fields; `/` reaches into an object (server-common.cpp:json_get_nested_values)."""
    found: dict[str, Any] = {}
    for path in paths:
        value: Any = body
        for key in path.split("/"):
            if not isinstance(value, Mapping) or key not in value:
                break
            value = value[key]
        else:
            found[path] = value
    return found
