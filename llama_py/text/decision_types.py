"""Types of decision models: how a question is shown, and which tokens answer it
(llama.cpp's server-decision.cpp)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Any

from ggml_py.errors import ModelError

if TYPE_CHECKING:
    from llama_py.tokenizer import Tokenizer

KINDS = ("choice", "score", "noul")  # one option, a level of a scale, yes or no
LETTERS = ascii_uppercase + ascii_lowercase
MOST_LABELS = 255  # of types with more labels than letters
N_RATINGS = 9  # from certainly no to certainly yes
Label = tuple[str, list[int]]  # text in the prompt, and tokens: the likeliest one counts


@dataclass(frozen=True, slots=True)
class QuestionOption:
    """An option of a question: its name, and a JSON value that describes it, or None."""

    key: str
    description: Any = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a state.

    id            name of the question
    kind          a value of KINDS; the options of "noul" are `true` and `false`, in any order
    instructions  the question, a JSON value
    options       not more than the type's labels
    """

    id: str
    kind: str
    instructions: Any
    options: Sequence[QuestionOption] = field(default=())

    def show(self) -> dict[str, Any]:
        """Return the variables of a template."""
        options = [{"key": o.key, "description": o.description} for o in self.options]
        shown = {"id": self.id, "type": self.kind, "instructions": self.instructions}
        return {**shown, "options": options}


_SIZES = {"2": 2, "3_5": 5, "6_10": 10, "11": math.inf}


@dataclass(frozen=True, slots=True)
class DecisionType:
    """A type of decision models. Labels are next tokens, unless it reads rows of embeddings.

    codes            labels are A to Z and AA to ZZ, if they are single tokens; the template shows
                     them. Otherwise labels are letters
    words            labels are words and digits, and letters of a choice; the template shows them
    rated            a "noul" question is answered by ratings, without its options
    turns            a choice is shown in both orders of its options
    true_first       the first option of "noul" is `true`
    sorts_keys       the template gets objects with sorted keys
    lists_questions  the template gets all questions of the request
    needs_state      a request must have a state
    named_sides      "yes" and "no" also describe the options of "noul"
    rows             how a model is read that gives rows of embeddings: "joint": one prompt has all
                     questions, with marks, and the options of a choice by key; "pointer": the
                     prompt's end is compared with its options' ends; "head" and "pieces": scores
                     of the options' mask tokens (llama_py.text.decision_masks)
    sizes            names of temperatures, by the largest number of options
    """

    codes: bool = False
    words: bool = False
    rated: bool = False
    turns: bool = False
    true_first: bool = True
    sorts_keys: bool = False
    lists_questions: bool = False
    needs_state: bool = True
    named_sides: bool = False
    rows: str = ""
    sizes: Mapping[str, float] = field(default_factory=lambda: _SIZES)

    def size(self, n: int) -> str:
        """Return the name of a number of options."""
        return next(name for name, most in self.sizes.items() if n <= most)

    def labels(self, tokenizer: Tokenizer, question: Question) -> list[Label]:
        """Return the labels of a question's options or ratings. ModelError if the vocabulary does
        not have them as single tokens."""
        if self.words:
            return _word_labels(tokenizer, question)
        n = N_RATINGS if self.rated and question.kind == "noul" else len(question.options)
        found = [(text, [id]) for text, id in self.all_labels(tokenizer)[:n]]
        if len(found) < n:
            raise ModelError(
                f"the vocabulary has only {len(found)} of {n} labels as single tokens; use fewer "
                "options"
            )
        return found

    def all_labels(self, tokenizer: Tokenizer) -> list[tuple[str, int]]:
        """Return all labels of a type without words: texts and tokens."""
        if self.codes:
            return _codes(tokenizer)
        found = []
        for letter in LETTERS:
            id = _single(tokenizer, letter)
            if id is None:
                raise ModelError(
                    f"decision label {letter!r} must be a single token; convert the model again"
                )
            found.append((letter, id))
        return found

    def max_options(self, tokenizer: Tokenizer) -> int:
        """Return the maximum number of options."""
        if self.words or self.rows:
            return MOST_LABELS
        return len(_codes(tokenizer)) if self.codes else len(LETTERS)


TYPES = {
    "openjev": DecisionType(),
    "lev": DecisionType(
        codes=True,
        rated=True,
        turns=True,
        true_first=False,
        sorts_keys=True,
        sizes={"small": 8, "mid": 26, "large": math.inf},
    ),
    "nimble": DecisionType(codes=True, true_first=False, lists_questions=True),
    "pplx-decider": DecisionType(codes=True, true_first=False),
    "lfm2-d1": DecisionType(words=True, needs_state=False),
    "lfm2-d1-omni": DecisionType(
        rows="pieces", true_first=False, needs_state=False, named_sides=True
    ),
    "clef": DecisionType(rows="joint"),
    "kev": DecisionType(rows="pointer", true_first=False),
    "laya": DecisionType(rows="head", true_first=False),
}


def sort_keys(value: Any) -> Any:
    """Sort the keys of all objects in a JSON value."""
    if isinstance(value, dict):
        return {key: sort_keys(value[key]) for key in sorted(value)}
    return [*map(sort_keys, value)] if isinstance(value, list) else value


def replace_texts(value: Any, change: Callable[[str], str], keys: bool = False) -> Any:
    """Change all texts in a JSON value; keys: also its keys."""
    if isinstance(value, dict):
        name = change if keys else str
        return {name(key): replace_texts(one, change, keys) for key, one in value.items()}
    if isinstance(value, list):
        return [replace_texts(one, change, keys) for one in value]
    return change(value) if isinstance(value, str) else value


def _single(tokenizer: Tokenizer, text: str) -> int | None:
    ids = tokenizer.tokenize(text, False, False)
    return ids[0] if len(ids) == 1 else None


def _codes(tokenizer: Tokenizer) -> list[tuple[str, int]]:
    pairs = map("".join, product(ascii_uppercase, repeat=2))
    found = ((text, _single(tokenizer, text)) for text in chain(ascii_uppercase, pairs))
    return [(text, id) for text, id in found if id is not None][:MOST_LABELS]


def _word_labels(tokenizer: Tokenizer, question: Question) -> list[Label]:
    if question.kind == "choice":
        return _choice_labels(tokenizer, [option.key for option in question.options])
    found = []
    for option in question.options:
        word = {"true": "yes", "false": "no"}.get(option.key)
        forms = [option.key] if word is None else [word, word.capitalize(), word.upper()]
        ids = [id for form in forms if (id := _single(tokenizer, form)) is not None]
        if not ids:
            raise ModelError(
                f"decision label {option.key!r} must be a single token; convert the model again"
            )
        found.append((option.key, [*dict.fromkeys(ids)]))
    return found


def _choice_labels(tokenizer: Tokenizer, keys: Sequence[str]) -> list[Label]:
    """Return letters or numbers, each also with a space before it. A code that is not a single
    token is replaced by an unused one."""
    letters = all(len(key) == 1 and key in LETTERS for key in keys)
    numbered = len(keys) > len(ascii_uppercase)
    found: dict[int, Label] = {}
    for i, key in enumerate(keys):
        code = key if letters else f"{i:02}" if numbered else ascii_uppercase[i]
        for text in chain([code], _spare_codes()):
            id = _single(tokenizer, text)
            if id is not None and id not in found:
                spaced = _single(tokenizer, f" {text}")
                found[id] = text, [id] if spaced in (None, id) else [id, spaced]
                break
        else:
            raise ModelError(
                f"the vocabulary has only {len(found)} labels for {len(keys)} options; use fewer "
                "options"
            )
    return [*found.values()]


def _spare_codes() -> Iterator[str]:
    yield from ascii_uppercase
    yield from (f"{i:02}" for i in range(100))
    yield from ascii_lowercase
    yield from (f"#{i}" for i in range(200))
    yield from map("".join, product(ascii_uppercase, repeat=2))
