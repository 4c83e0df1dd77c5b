"""Decisions: typed questions about a state, answered by the probabilities of their options.

A model reads the state, a question and its options with labels, A, B and so on. An option has the
probability of its label as the next text (llama.cpp's server-decision.cpp). No text is generated.
Files of decision models have a template for the prompt and temperatures; other models get a
question through their chat template.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from ggml_py.errors import ModelError
from llama_py.chat import ChatTemplate
from llama_py.loading.model import LoadedModel
from llama_py.text.chat_prompt import tokenize_prompt

KINDS = ("choice", "score", "noul")  # one option, a level of a scale, yes or no
LABELS = ascii_uppercase + ascii_lowercase
N_BEFORE = 32  # characters before a label that determine its tokens
MOST_LEVELS = 10  # levels of a score
TEMPLATE = "systemone"  # name of the file's template for questions
SERVED = "openjev"  # type of decision models whose labels are next tokens
_SIZES = {"3_5": range(3, 6), "6_10": range(6, 11)}  # numbers of options with own temperatures


@dataclass(frozen=True, slots=True)
class QuestionOption:
    """An option of a question: its name, and a JSON value that describes it, or None."""

    key: str
    description: Any = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a state.

    id            name of the question
    kind          a value of KINDS; the options of "noul" are `true` and `false`
    instructions  the question, a JSON value
    options       at most 52
    """

    id: str
    kind: str
    instructions: Any
    options: Sequence[QuestionOption] = field(default=())


class Decider:
    """Prompts and answers of a model's decisions."""

    def __init__(self, model: LoadedModel) -> None:
        """Check the model's type and temperatures; ModelError if they are not supported."""
        self.model, self._metadata = model, model.file.metadata
        kind = self._metadata.get(f"{model.arch}.decision.type")
        if kind is not None and kind != SERVED:
            raise ModelError(
                f"decision models of type {kind!r} are not supported; known: {SERVED!r}, and "
                "models without a type"
            )
        self._temperatures = self._read_temperatures()

    def prompt(self, state: Any, question: Question) -> list[int]:
        """Return the tokens of a prompt that ends before the label; ModelError for an error in the
        file's template."""
        return self.tokenize(self.render(state, question))

    def render(self, state: Any, question: Question) -> str:
        """Return the text of a prompt; ModelError like `prompt`."""
        template, chat = self._template, self.model.chat_template
        if template is not None:
            return template.render_variables(
                state=state,
                options=[{"key": o.key, "description": o.description} for o in question.options],
                instructions=question.instructions,
                type=question.kind,
                id=question.id,
                images=[],
            )
        text = _question_text(state, question)
        if chat is None:
            return f"{text}\n\nAnswer:"
        return chat.render([{"role": "user", "content": text}], enable_thinking=False)

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a rendered prompt."""
        if self._template is None and self.model.chat_template is not None:
            return tokenize_prompt(self.model, text)
        return self.model.tokenizer.tokenize(text)

    def labels(self, question: Question, text: str) -> list[list[int]]:
        """Return the tokens of each option's label after a rendered prompt.

        After the file's template a label is tokenized apart, like in llama.cpp; after other prompts
        it has the tokens that continue the text.
        """
        t, labels = self.model.tokenizer, LABELS[: len(question.options)]
        if self._template is not None:
            return [t.tokenize(label, False) for label in labels]
        space = "" if self.model.chat_template is not None else " "
        end = text[-N_BEFORE:]
        n = len(t.tokenize(end, False))
        return [
            t.tokenize(f"{end}{space}{label}", False)[n:] or t.tokenize(label, False)
            for label in labels
        ]

    def answer(self, question: Question, logprobs: Sequence[float]) -> dict[str, Any]:
        """Return the answer by the log probabilities of the labels: its type, the probabilities of
        the options, and the confidence, from 0 (no preference) to 1."""
        return _answer(question, _softmax(logprobs, self._temperature(question)))

    @cached_property
    def _template(self) -> ChatTemplate | None:
        return self.model.named_template(TEMPLATE)

    def _temperature(self, question: Question) -> float:
        n, known = len(question.options), self._temperatures
        for size, numbers in _SIZES.items():
            if n in numbers and f"{question.kind}.{size}" in known:
                return known[f"{question.kind}.{size}"]
        return known.get(question.kind, 1.0)

    def _read_temperatures(self) -> dict[str, float]:
        start = f"{self.model.arch}.decision.temperature."
        found = {}
        for name in (*KINDS, *(f"{kind}.{size}" for kind in KINDS for size in _SIZES)):
            value = self._metadata.get(start + name)
            if value is None:
                continue
            if not isinstance(value, float) or not 0 < value < math.inf:
                raise ModelError(
                    f"{start}{name} must be a positive number, got {value!r}; convert the model "
                    "again"
                )
            found[name] = value
        return found


def _softmax(logprobs: Sequence[float], temperature: float) -> list[float]:
    largest = max(logprobs)
    weights = [math.exp((x - largest) / temperature) for x in logprobs]
    total = sum(weights)
    return [x / total for x in weights]


def _answer(question: Question, shares: Sequence[float]) -> dict[str, Any]:
    if question.kind == "noul":
        return {"type": "noul", "noul": shares[0]}
    probabilities = {o.key: p for o, p in zip(question.options, shares, strict=True)}
    best, n = max(range(len(shares)), key=lambda i: shares[i]), len(shares)
    if question.kind == "choice":
        confidence = (shares[best] - 1 / n) / (1 - 1 / n) if n > 1 else 1.0
        return {
            "type": "choice",
            "choice": question.options[best].key,
            "probabilities": probabilities,
            "confidence": max(confidence, 0.0),
        }
    distance = sum(p * abs(i - best) for i, p in enumerate(shares))
    return {
        "type": "score",
        "score": sum(i * p for i, p in enumerate(shares)),
        "legend": {o.key: o.description for o in question.options},
        "probabilities": probabilities,
        "confidence": max(1 - distance / (n * n // 4 / n), 0.0),  # 0: like equal probabilities
    }


def _question_text(state: Any, question: Question) -> str:
    names = {"true": "yes", "false": "no"} if question.kind == "noul" else {}
    lines = [
        f"{label}. {_option_text(question.kind, names.get(o.key, o.key), o.description)}"
        for label, o in zip(LABELS, question.options, strict=False)
    ]
    options = "\n".join(lines)
    return (
        f"State:\n{_text(state)}\n\nQuestion:\n{_text(question.instructions)}\n\nOptions:\n"
        f"{options}\n\nAnswer with the letter of the best option."
    )


def _option_text(kind: str, key: str, description: Any) -> str:
    if description is None:
        return key
    return _text(description) if kind == "score" else f"{key}: {_text(description)}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
