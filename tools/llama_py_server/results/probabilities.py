"""How likely tokens were (server-task.cpp:probs_vector_to_json)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llama_py.tokenizer import Tokenizer
    from llama_py_server.answer import Chosen

LOWEST = -3.4028234663852886e38  # JSON has no -inf


def probabilities(
    tokenizer: Tokenizer, chosen: Sequence[Chosen], after_sampling: bool
) -> list[dict[str, Any]]:
    """Of each token: itself, its text and bytes, its (log) probability and the most likely ones."""
    name, top = ("prob", "top_probs") if after_sampling else ("logprob", "top_logprobs")
    return [
        {
            "id": one.token,
            "token": one.text,
            "bytes": list(one.text.encode("utf-8", "replace")),
            name: _finite(one.value),
            top: [_likely(tokenizer, id, value, name) for id, value in one.top],
        }
        for one in chosen
    ]


def _likely(tokenizer: Tokenizer, id: int, value: float, name: str) -> dict[str, Any]:
    piece = tokenizer.token_to_piece(id, special=True)
    text = piece.decode("utf-8", "ignore")
    return {"id": id, "token": text, "bytes": list(piece), name: _finite(value)}


def _finite(value: float) -> float:
    return value if math.isfinite(value) else LOWEST
