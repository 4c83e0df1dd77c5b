"""Writer of responses of text-generation-inference (TGI)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llama_py_server.stream.writers.probabilities import LOWEST, score_prompt
from llama_py_server.wire.responses import tgi_error
from llama_py_server.wire.sse import EVENTS, Frame

if TYPE_CHECKING:
    from llama_py_server.models.state import ModelState
    from llama_py_server.schema.tgi import ResponseContents
    from llama_py_server.stream.reply import Change, ChosenToken, Reply
    from llama_py_server.wire.errors import HTTPError

_REASONS = {"eos": "eos_token", "word": "stop_sequence"}  # all others are "length"


class GenerateWriter:
    """Writer of /generate and /generate_stream. as_list: the body of POST /, a list"""

    end, form = b"", EVENTS

    def __init__(self, state: ModelState, wanted: ResponseContents, as_list: bool) -> None:
        self.tokenizer, self.wanted, self.as_list = state.tokenizer, wanted, as_list
        self._n = 0
        self._last: dict[str, Any] | None = None  # the event of the last token

    def write_body(self, replies: Sequence[Reply]) -> Any:
        reply = replies[0]
        found: dict[str, Any] = {"generated_text": self.wanted.prefix + reply.text}
        if self.wanted.details:
            found["details"] = self._details(reply)
        return [found] if self.as_list else found

    def _details(self, reply: Reply) -> dict[str, Any]:
        prefill = score_prompt(self.tokenizer, reply) if self.wanted.prefill else []
        found: dict[str, Any] = {
            **self._write_ending(reply),
            "prefill": [self._prefill(one) for one in prefill],
            "tokens": [self._token(one.token, one.value, one.data) for one in reply.chosen],
        }
        if self.wanted.n_top:
            found["top_tokens"] = [self._top(one) for one in reply.chosen]
        return found

    def _write_ending(self, reply: Reply) -> dict[str, Any]:
        params = reply.request.params
        return {
            "finish_reason": _REASONS.get(reply.stop_type, "length"),
            "generated_tokens": reply.n_generated,
            "seed": params.seed if params.has_seed and params.temp > 0 else None,
        }

    def _prefill(self, one: ChosenToken) -> dict[str, Any]:
        text = one.data.decode("utf-8", "replace")
        return {"id": one.token, "text": text, "logprob": one.value}

    def _token(self, id: int, value: float | None, data: bytes | None = None) -> dict[str, Any]:
        text = data or self.tokenizer.token_to_piece(id, special=True)
        return {
            "id": id,
            "text": text.decode("utf-8", "replace"),
            "logprob": LOWEST if value is None or value == float("-inf") else value,
            "special": self.tokenizer.is_special(id) or self.tokenizer.is_eog(id),
        }

    def _top(self, one: ChosenToken) -> list[dict[str, Any]]:
        return [self._token(id, value) for id, value in one.top]

    def progress(self, reply: Reply) -> list[Frame]:
        return []

    def partial(self, reply: Reply, change: Change) -> list[Frame]:
        """Return the event of a token. The texts of all events together are the response's text;
        the last event waits for `final`."""
        if change.chosen:
            (one,) = change.chosen
            self._n += 1
            token = {**self._token(one.token, one.value), "text": change.text}
            self._last = {"index": self._n, "token": token}
            if self.wanted.n_top:
                self._last["top_tokens"] = self._top(one)
        elif change.text:  # rest of a response that ended without a token
            self._last = self._rest(reply, change.text)
        if reply.has_ended or self._last is None:
            return []
        found, self._last = {**self._last, "generated_text": None, "details": None}, None
        return [Frame(found)]

    def _rest(self, reply: Reply, text: str = "") -> dict[str, Any]:
        """Return an event for an end without a token."""
        id = reply.tokens[-1] if reply.tokens else 0
        token = {"id": id, "text": text, "logprob": 0.0, "special": not text}
        return {"index": self._n, "token": token}

    def final(self, reply: Reply) -> list[Frame]:
        last = self._last or self._rest(reply)
        ending = {**self._write_ending(reply), "input_length": reply.n_prompt}
        text = self.wanted.prefix + reply.text
        return [Frame({**last, "generated_text": text, "details": ending})]

    def error(self, error: HTTPError) -> Frame:
        return Frame(tgi_error(error))
