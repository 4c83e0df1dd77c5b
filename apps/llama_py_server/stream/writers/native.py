"""Writer for llama-server's own format (server-task.cpp:to_json_non_oaicompat)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llama_py.batch.prompts import MARKER, MixedPrompt
from llama_py_server.stream.writers.probabilities import probabilities
from llama_py_server.stream.writers.progress import timings, with_progress
from llama_py_server.stream.writers.settings import all_settings
from llama_py_server.wire.sse import EVENTS, Frame

if TYPE_CHECKING:
    from llama_py_server.models.state import ModelState
    from llama_py_server.stream.reply import Change, Reply
    from llama_py_server.wire.errors import HTTPError


class NativeWriter:
    """Writer of /completion and /infill."""

    end, form = b"", EVENTS

    def __init__(self, state: ModelState) -> None:
        self.state = state

    def write_body(self, replies: Sequence[Reply]) -> Any:
        found = [reply_body(self.state, reply) for reply in replies]
        return found[0] if len(found) == 1 else found

    def progress(self, reply: Reply) -> list[Frame]:
        return [Frame(with_progress(reply, self._partial(reply)))]

    def partial(self, reply: Reply, change: Change) -> list[Frame]:
        body = self._partial(reply, change.text, change.tokens)
        if reply.delivery.timings_per_token:
            body["timings"] = timings(reply)
        if change.chosen:
            body["completion_probabilities"] = probabilities(
                self.state.tokenizer, change.chosen, reply.request.post_sampling_probs
            )
        return [Frame(body)]

    def _partial(self, reply: Reply, text: str = "", tokens: Sequence[int] = ()) -> dict[str, Any]:
        return {
            "index": reply.index,
            "content": text,
            "tokens": list(tokens),
            "stop": False,
            "id_slot": reply.slot,
            "tokens_predicted": reply.n_generated,
            "tokens_evaluated": reply.n_prompt,
        }

    def final(self, reply: Reply) -> list[Frame]:
        return [Frame(reply_body(self.state, reply))]

    def error(self, error: HTTPError) -> Frame:
        return Frame({"error": error.body})


def reply_body(state: ModelState, reply: Reply) -> dict[str, Any]:
    """Return a reply that has ended; in a stream its text was sent before."""
    told = reply.delivery
    body: dict[str, Any] = {
        "index": reply.index,
        "content": "" if told.stream else reply.text,
        "tokens": reply.tokens if told.return_tokens and not told.stream else [],
        "id_slot": reply.slot,
        "model": state.name,
        "tokens_predicted": reply.n_generated,
        "tokens_evaluated": reply.n_prompt,
        "generation_settings": all_settings(reply.request, told, state),
        "prompt": show_prompt(state, reply.prompt),
        "has_new_line": reply.has_new_line,
        "truncated": reply.truncated,
        "stop": True,
        "stop_type": reply.stop_type,
        "stopping_word": reply.stopping_word,
        "tokens_cached": reply.n_prompt + max(reply.n_generated - 1, 0),
        "timings": timings(reply),
        **reply.mark,
    }
    if reply.chosen and not told.stream:
        body["completion_probabilities"] = probabilities(
            state.tokenizer, reply.chosen, reply.request.post_sampling_probs
        )
    return nested(body, told.response_fields) if told.response_fields else body


def show_prompt(state: ModelState, ids: Sequence[int]) -> str:
    """Return the text of a prompt's tokens, including special tokens; images become markers."""
    tokenizer = state.tokenizer
    media = ids.media if isinstance(ids, MixedPrompt) else {}
    data = b"".join(
        tokenizer.token_to_piece(id, special=True) if id >= 0 else MARKER.encode()
        for i, id in enumerate(ids)
        if id >= 0 or i in media
    )
    return data.decode("utf-8", "replace")


def nested(body: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """Select fields; `/` reaches into an object (server-common.cpp:json_get_nested_values)."""
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
