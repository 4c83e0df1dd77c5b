"""Check a model's responses to JSON schemas with the jsonschema package."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from dev.torture.schemas.generate import Schema, schema
from dev.torture.schemas.written import WRITTEN
from ggml_py.errors import GrammarError

if TYPE_CHECKING:
    from llama_py import Model

WAYS = ("plain", "greedy", "shuffled")  # temperature 1, 0, and 1 with seeded noise
NOISE = 4.0
PROMPT = "ROMEO:\n"


@dataclass(frozen=True)
class Told:
    """Result of a schema: valid, cut (context full), refused (unsupported schema), or wrong."""

    number: int
    way: str
    what: str
    text: str
    n_tokens: int
    seconds: float


def nth(number: int) -> Schema:
    return WRITTEN[number] if number < len(WRITTEN) else schema(number)


def answers(model: Model, numbers: Sequence[int], max_tokens: int) -> Iterator[Told]:
    for number in numbers:
        yield answer(model, number, WAYS[number % len(WAYS)], max_tokens)


def answer(model: Model, number: int, way: str, max_tokens: int) -> Told:
    wanted = nth(number)
    options: dict[str, Any] = {
        "json_schema": wanted,
        "max_tokens": max_tokens,
        "seed": number,
        "temp": 0.0 if way == "greedy" else 1.0,
    }
    if way == "shuffled":
        options["logits_processors"] = [shuffled(number)]
    began = perf_counter()
    try:
        pieces = list(model.stream(PROMPT, **options))
    except GrammarError as e:
        return Told(number, way, "refused", str(e), 0, 0.0)
    text = "".join(piece.text for piece in pieces)
    what = judged(text, wanted) if pieces[-1].finish_reason == "eos" else "cut"
    return Told(number, way, what, text, len(pieces), perf_counter() - began)


def shuffled(number: int) -> Any:
    """Return a logits processor that adds seeded noise."""
    rng = np.random.default_rng(number)

    def process(ids: Sequence[int], logits: Any) -> Any:
        return logits + rng.normal(0, NOISE, logits.shape).astype(np.float32)

    return process


def judged(text: str, wanted: Schema) -> str:
    from jsonschema import Draft202012Validator as Validator

    try:
        value = json.loads(text)
    except ValueError as e:
        return f"wrong: no JSON: {e}"
    judge = Validator(wanted, format_checker=Validator.FORMAT_CHECKER)
    error = next(iter(judge.iter_errors(value)), None)
    return f"wrong: {error.message}" if error else "valid"


def summary(told: Sequence[Told]) -> str:
    counts = Counter(one.what.partition(":")[0] for one in told)
    n, seconds = sum(one.n_tokens for one in told), sum(one.seconds for one in told)
    parts = ", ".join(f"{counts[what]} {what}" for what in ("valid", "cut", "refused", "wrong"))
    return f"{len(told)} schemas: {parts}; {n} tokens, {n / max(seconds, 1e-9):.0f} a second"
