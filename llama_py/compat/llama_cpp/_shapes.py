"""Dictionaries of completions and chat completions, in the form of the OpenAI API."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llama_py.text.generate import Piece
from llama_py.tokenizer import Tokenizer

Body = dict[str, Any]
ROLE = {"role": "assistant"}


def finish_reason(piece: Piece) -> str | None:
    """Return the reason in OpenAI's terms."""
    return "stop" if piece.finish_reason in ("eos", "stop", "grammar") else piece.finish_reason


def token_text(tokenizer: Tokenizer, id: int) -> str:
    """Return the text of a token, without incomplete characters."""
    return tokenizer.token_to_piece(id).decode("utf-8", "ignore")


@dataclass(frozen=True)
class ResponseFields:
    """Constant fields of a response and its chunks."""

    model: str
    id: str = field(default_factory=lambda: f"cmpl-{uuid.uuid4()}")
    created: int = field(default_factory=lambda: int(time.time()))

    def completion(
        self, text: str, reason: str | None, logprobs: Body | None = None, usage: Body | None = None
    ) -> Body:
        """Return a completion, or a chunk: without usage."""
        choice = {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": reason}
        found = self._body(self.id, "text_completion", choice)
        return found if usage is None else {**found, "usage": usage}

    def chat(self, message: Body, reason: str | None, logprobs: Body | None, usage: Body) -> Body:
        """Return a chat completion."""
        choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": reason}
        return {**self._body(f"chat{self.id}", "chat.completion", choice), "usage": usage}

    def chat_chunk(
        self, delta: Mapping[str, Any], reason: str | None = None, logprobs: Body | None = None
    ) -> Body:
        """Return a chunk of a chat completion."""
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return self._body(f"chat{self.id}", "chat.completion.chunk", choice)

    def _body(self, id: str, kind: str, choice: Body) -> Body:
        return {
            "id": id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": [choice],
        }


def count_usage(n_prompt: int, n_completion: int) -> Body:
    """Return the token counts of a response."""
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_completion,
        "total_tokens": n_prompt + n_completion,
    }


@dataclass
class Logprobs:
    """Log probabilities of a response's tokens.

    n       number of most likely tokens
    offset  characters before the next token
    """

    tokenizer: Tokenizer
    n: int
    offset: int = 0
    tokens: list[str] = field(default_factory=list)
    text_offset: list[int] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list)

    def add(self, id: int, logprob: float | None, top: Iterable[tuple[int, float]]) -> None:
        """Add a token; logprob None: it has no probability."""
        text = token_text(self.tokenizer, id)
        self.tokens.append(text)
        self.text_offset.append(self.offset)
        self.token_logprobs.append(logprob)
        likely = {token_text(self.tokenizer, other): value for other, value in top}
        self.top_logprobs.append(None if logprob is None else {**likely, text: logprob})
        self.offset += len(text)

    def take(self) -> Body:
        """Return the tokens in the form of a completion, and forget them."""
        found = {
            "tokens": self.tokens,
            "text_offset": self.text_offset,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs,
        }
        self.tokens, self.text_offset, self.token_logprobs, self.top_logprobs = [], [], [], []
        return found


def chat_logprobs(given: Body | None) -> Body | None:
    """Return log probabilities of a completion in the form of a chat completion."""
    if given is None:
        return None
    rows = zip(given["tokens"], given["token_logprobs"], given["top_logprobs"], strict=True)
    content = [
        {
            "token": token,
            "bytes": None,
            "logprob": logprob,
            "top_logprobs": [
                {"token": other, "logprob": value, "bytes": None}
                for other, value in (top or {}).items()
            ],
        }
        for token, logprob, top in rows
    ]
    return {"content": content, "refusal": None}


def chat_from_completion(completion: Mapping[str, Any]) -> Body:
    """Return a completion as a chat completion."""
    [choice] = completion["choices"]
    found = ResponseFields(completion["model"], completion["id"], completion["created"])
    return found.chat(
        {**ROLE, "content": choice["text"]},
        choice["finish_reason"],
        chat_logprobs(choice["logprobs"]),
        completion["usage"],
    )


def chat_chunks(chunks: Iterable[Mapping[str, Any]]) -> Iterator[Body]:
    """Yield chunks of a completion as chunks of a chat completion."""
    begun = False
    for chunk in chunks:
        [choice] = chunk["choices"]
        found = ResponseFields(chunk["model"], chunk["id"], chunk["created"])
        if not begun:
            yield found.chat_chunk(ROLE)
            begun = True
        reason = choice["finish_reason"]
        delta = {"content": choice["text"]} if choice["text"] or reason is None else {}
        yield found.chat_chunk(delta, reason, chat_logprobs(choice["logprobs"]))


def read_tools(
    tools: Sequence[Mapping[str, Any]] | None,
    tool_choice: Any,
    functions: Sequence[Mapping[str, Any]] | None,
    function_call: Any,
) -> tuple[Sequence[Mapping[str, Any]] | None, Any]:
    """Return tools and the choice, also from the API's former `functions` and `function_call`."""
    if functions is not None:
        tools = [{"type": "function", "function": one} for one in functions]
    if isinstance(function_call, Mapping):
        tool_choice = {"type": "function", "function": {"name": function_call["name"]}}
    elif function_call is not None:
        tool_choice = function_call
    return tools or None, tool_choice
