"""Decisions: typed questions about a state, answered by the probabilities of their options.

A model reads the state, a question and its options with labels, A, B and so on. An option has the
probability of its label as the next text (llama.cpp's server-decision.cpp). No text is generated.
Files of decision models have a type, a template for the prompt and temperatures; other models get
a question through their chat template.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ggml_py.errors import ModelError
from llama_py.batch.prompts import MARKER
from llama_py.chat import ChatTemplate
from llama_py.loading.model import LoadedModel
from llama_py.text.chat_prompt import tokenize_prompt
from llama_py.text.decision_joint import joint_prompt
from llama_py.text.decision_masks import head_prompt, piece_prompt
from llama_py.text.decision_pointer import pointer_prompt
from llama_py.text.decision_rows import RowPrompt
from llama_py.text.decision_types import (
    KINDS,
    LETTERS,
    N_RATINGS,
    TYPES,
    DecisionType,
    Question,
    QuestionOption,
    replace_texts,
    sort_keys,
)

N_BEFORE = 32  # characters before a label that determine its tokens
MOST_LEVELS = 10  # levels of a score
TEMPLATE = "systemone"  # name of the file's template for questions

__all__ = ["KINDS", "MOST_LEVELS", "Decider", "Question", "QuestionOption"]


class Decider:
    """Prompts and answers of a model's decisions.

    type  how questions are shown and answered
    """

    def __init__(self, model: LoadedModel) -> None:
        """Check the model's type, template and temperatures; ModelError if they are not
        supported."""
        self.model, self._metadata = model, model.file.metadata
        kind = self._metadata.get(f"{model.arch}.decision.type")
        if kind is not None and kind not in TYPES:
            raise ModelError(
                f"decision models of type {kind!r} are not supported; known: {', '.join(TYPES)}, "
                "and models without a type"
            )
        self.type = TYPES[str(kind)] if kind is not None else DecisionType()
        if kind is not None and self._template is None:
            raise ModelError(
                f"decision model has no {TEMPLATE!r} template; convert the model again"
            )
        self._temperatures = self._read_temperatures()

    @property
    def max_options(self) -> int:
        """Maximum number of a question's options."""
        return self.type.max_options(self.model.tokenizer)

    def orders(self, question: Question) -> tuple[bool, ...]:
        """Return for each prompt of a question whether its options are in reverse order."""
        turns = self.type.turns and question.kind == "choice" and len(question.options) > 1
        return (False, True) if turns else (False,)

    def row_prompts(self, state: Any, questions: Sequence[Question]) -> list[RowPrompt]:
        """Return the prompts of a type that reads rows of embeddings. ModelError if a text is
        empty, or the file's template or vocabulary does not fit."""
        assert self._template is not None
        given = self._template, self.model.tokenizer
        if self.type.rows == "joint":
            return [joint_prompt(*given, state, questions)]
        if self.type.rows == "head":
            return [head_prompt(*given, self._metadata, state, one) for one in questions]
        prompt = pointer_prompt if self.type.rows == "pointer" else piece_prompt
        return [prompt(*given, state, one) for one in questions]

    def prompt(self, state: Any, question: Question) -> list[int]:
        """Return the tokens of a prompt that ends before the label; ModelError for an error in the
        file's template."""
        return self.tokenize(self.render(state, question))

    def render(
        self,
        state: Any,
        question: Question,
        questions: Sequence[Question] = (),
        n_images: int = 0,
        backward: bool = False,
    ) -> str:
        """Return the text of a prompt; ModelError like `prompt`.

        Args:
            state: JSON value that the question is about.
            question: Question to ask.
            questions: All questions of the request, for types that show them.
            n_images: Number of images; the text has a marker for each.
            backward: Show the options in reverse order, if `orders` has it.
        """
        images, blank = [MARKER] * n_images, " " if n_images else MARKER
        if self._template is not None:
            found = self._variables(state, question, questions, backward)
            found = replace_texts(found, lambda text: text.replace(MARKER, blank))
            return self._template.render_variables(**found, images=images)
        text = _question_text(state, question).replace(MARKER, blank)
        text, chat = "\n".join([*images, text]), self.model.chat_template
        if chat is None:
            return f"{text}\n\nAnswer:"
        return chat.render([{"role": "user", "content": text}], enable_thinking=False)

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a rendered prompt without images."""
        if self._template is None and self.model.chat_template is not None:
            return tokenize_prompt(self.model, text)
        return self.model.tokenizer.tokenize(text, self._template is None)

    def labels(self, question: Question, text: str) -> list[list[list[int]]]:
        """Return the labels of a question after a rendered prompt: for each its forms, as tokens.

        The likeliest form of a label counts. After the file's template a label is tokenized apart,
        like in llama.cpp; after other prompts it has the tokens that continue the text.
        """
        t = self.model.tokenizer
        if self._template is not None:
            return [[[id] for id in ids] for _, ids in self.type.labels(t, question)]
        space = "" if self.model.chat_template is not None else " "
        end = text[-N_BEFORE:]
        n = len(t.tokenize(end, False))
        return [
            [t.tokenize(f"{end}{space}{label}", False)[n:] or t.tokenize(label, False)]
            for label in LETTERS[: len(question.options)]
        ]

    def answer(self, question: Question, logprobs: Sequence[Sequence[float]]) -> dict[str, Any]:
        """Return the answer by the log probabilities of the labels, or by scores of options.

        Args:
            question: Question to answer.
            logprobs: Values of each prompt of `orders`.

        Returns:
            Its type, the probabilities of the options, and the confidence, from 0 (no preference)
            to 1.
        """
        temperature, shares = self._temperature(question), [0.0] * len(logprobs[0])
        for backward, one in zip(self.orders(question), logprobs, strict=True):
            found = _softmax(one, temperature)
            for i, share in enumerate(reversed(found) if backward else found):
                shares[i] += share / len(logprobs)
        if question.kind == "noul":
            return {"type": "noul", "noul": self._share_of_true(question, shares)}
        return _answer(question, shares)

    def _variables(
        self, state: Any, question: Question, questions: Sequence[Question], backward: bool
    ) -> dict[str, Any]:
        """Return the template's variables, without images."""
        found = self._show(question, backward) | {"state": state}
        if self.type.lists_questions:
            found["questions"] = [self._show(one) for one in questions or [question]]
        return dict(sort_keys(found)) if self.type.sorts_keys else found

    def _show(self, question: Question, backward: bool = False) -> dict[str, Any]:
        shown = question.show()
        if backward:
            shown["options"].reverse()
        for option, label in zip(shown["options"], self._shown_labels(question), strict=False):
            option["label"] = label
        return shown

    def _shown_labels(self, question: Question) -> list[str]:
        """Return the labels that the template shows."""
        t = self.model.tokenizer
        if self.type.codes:
            return [text for text, _ in self.type.all_labels(t)[: len(question.options)]]
        return [text for text, _ in self.type.labels(t, question)] if self.type.words else []

    def _share_of_true(self, question: Question, shares: Sequence[float]) -> float:
        if self.type.rated:
            return sum(share * i / (N_RATINGS - 1) for i, share in enumerate(shares))
        return next(p for o, p in zip(question.options, shares, strict=True) if o.key == "true")

    @cached_property
    def _template(self) -> ChatTemplate | None:
        return self.model.named_template(TEMPLATE)

    def _temperature(self, question: Question) -> float:
        known, size = self._temperatures, self.type.size(len(question.options))
        return known.get(f"{question.kind}.{size}", known.get(question.kind, 1.0))

    def _read_temperatures(self) -> dict[str, float]:
        start = f"{self.model.arch}.decision.temperature."
        found = {}
        for name in (*KINDS, *(f"{kind}.{size}" for kind in KINDS for size in self.type.sizes)):
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
        for label, o in zip(LETTERS, question.options, strict=False)
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
