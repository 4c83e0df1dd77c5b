"""Probabilities of tokens (server-task.cpp:probs_vector_to_json)."""

from __future__ import annotations

import codecs
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llama_py.serving import Score
from llama_py_server.stream.reply import ChosenToken

if TYPE_CHECKING:
    from llama_py.tokenizer import Tokenizer
    from llama_py_server.stream.reply import Reply

LOWEST = -3.4028234663852886e38  # JSON has no -inf


def probabilities(
    tokenizer: Tokenizer, chosen: Sequence[ChosenToken], after_sampling: bool
) -> list[dict[str, Any]]:
    """Return for each token its text, bytes, (log) probability and the most likely tokens."""
    name, top = ("prob", "top_probs") if after_sampling else ("logprob", "top_logprobs")
    return [
        {
            **_write_probability(tokenizer, one.token, one.value, name),
            top: [_write_probability(tokenizer, id, value, name) for id, value in one.top],
        }
        for one in chosen
    ]


def _write_probability(
    tokenizer: Tokenizer, id: int, value: float | None, name: str
) -> dict[str, Any]:
    piece = tokenizer.token_bytes(id)
    return {"id": id, "token": _escape_bytes(piece), "bytes": list(piece), name: _finite(value)}


def drop_end_token(tokenizer: Tokenizer, chosen: Sequence[ChosenToken]) -> list[ChosenToken]:
    """Drop the end token, which is not part of the text."""
    return [one for one in chosen if not tokenizer.is_eog(one.token)]


def score_prompt(tokenizer: Tokenizer, reply: Reply) -> list[ChosenToken]:
    """Return the tokens of a prompt as if they were sampled. The first has no probability."""
    first = [Score(id, None, ()) for id in reply.prompt[:1]]
    return [
        ChosenToken(one.token, tokenizer.token_bytes(one.token), one.logprob, one.top)
        for one in (*first, *reply.scores)
    ]


class CompletionLogprobs:
    """Log probabilities as in /v1/completions: lists of tokens, probabilities and offsets.

    Offsets count characters from the start of the prompt, over all calls of `lists`.
    """

    def __init__(self, tokenizer: Tokenizer, offset: int) -> None:
        self.tokenizer, self.offset = tokenizer, offset
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @classmethod
    def for_prompt(
        cls, tokenizer: Tokenizer, text: str, tokens: Sequence[ChosenToken]
    ) -> CompletionLogprobs:
        """Create the lists of a prompt; tokens before its text (BOS) have offset 0."""
        data = b"".join(one.data for one in tokens)
        return cls(tokenizer, len(text) - len(data.decode("utf-8", "replace")))

    def lists(self, chosen: Sequence[ChosenToken]) -> dict[str, list[Any]]:
        offsets = []
        for one in chosen:
            offsets.append(max(self.offset, 0))
            self.offset += len(self._decoder.decode(one.data))
        return {
            "tokens": [self._text(one.token) for one in chosen],
            "token_logprobs": [_finite(one.value) for one in chosen],
            "top_logprobs": [self._top(one) for one in chosen],
            "text_offset": offsets,
        }

    def _top(self, one: ChosenToken) -> dict[str, float | None] | None:
        """Return the most likely tokens by text; if texts are equal, the most likely one counts."""
        if one.value is None:
            return None
        return {self._text(id): _finite(value) for id, value in reversed(one.top)}

    def _text(self, id: int) -> str:
        piece = self.tokenizer.token_bytes(id)
        text = _escape_bytes(piece)
        return text if text.encode() == piece else f"bytes:{text}"


def _escape_bytes(piece: bytes) -> str:
    r"""Return the text of a token; bytes of an incomplete character become \xNN, like OpenAI's."""
    return piece.decode("utf-8", "backslashreplace")


def _finite(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else LOWEST
