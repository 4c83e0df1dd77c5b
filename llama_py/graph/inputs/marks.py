"""Inputs from marked tokens: rows, means and masks of questions and their options."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ggml_py.types import F32, I32
from llama_py.batch import UBatch
from llama_py.graph.inputs.base import new_input, write
from llama_py.graph.params import GraphParams

OPTION = 4  # the mark of options; others are of questions


class Span(NamedTuple):
    """Consecutive tokens with the same mark, from `first` to `last`."""

    mark: int
    first: int
    last: int


def find_spans(ubatch: UBatch) -> tuple[list[Span], list[Span]]:
    """Return the spans of questions and of options."""
    spans, i = list[Span](), 0
    for mark, run in groupby([] if ubatch.marks is None else ubatch.marks.tolist()):
        n = len(list(run))
        if mark:
            spans.append(Span(mark, i, i + n - 1))
        i += n
    return [s for s in spans if s.mark != OPTION], [s for s in spans if s.mark == OPTION]


class InputMarkedRows:
    """The last token of each option and of the question.

    options, question  I32 [n_options], [1]; row 0 without marks, or if they do not fit
    valid    F32 [1], 0; NaN if the batch has marks, but not one question with options
    """

    def __init__(self, params: GraphParams) -> None:
        self.options = new_input("", I32, _n_options(params.ubatch))
        self.question = new_input("", I32, 1)
        self.valid = new_input("", F32, 1)

    def set_input(self, ubatch: UBatch) -> None:
        questions, options = _one_question(ubatch)
        write(self.options, np.array([s.last for s in options] or [0], np.int32))
        write(self.question, np.array([s.last for s in questions] or [0], np.int32))
        valid = bool(questions) or not any(find_spans(ubatch))
        write(self.valid, np.array([0 if valid else np.nan], np.float32))

    def can_reuse(self, params: GraphParams) -> bool:
        return self.options.ne[0] == _n_options(params.ubatch)


def _one_question(ubatch: UBatch) -> tuple[list[Span], list[Span]]:
    """Return the question and its options; nothing if the marks do not fit."""
    questions, options = find_spans(ubatch)
    return (questions, options) if len(questions) == 1 and options else ([], [])


def _n_options(ubatch: UBatch) -> int:
    return len(_one_question(ubatch)[1]) or 1


class InputFields:
    """Questions and their options, for heads that compare means.

    question_means, option_means  F32 [n_tokens, n]: 1 / length for the tokens of each
    owners  I32 [n_options], the question of each option
    others  F32 [n_options, n_questions], -inf for options of other questions
    kinds   I32 [n_questions], the mark of each, less 1
    valid   F32 [1], 0; NaN unless each question has options after it
    Without marks, or if they do not fit: one question and one option, both without tokens.
    """

    def __init__(self, params: GraphParams) -> None:
        n_questions, n_options = _n_both(params.ubatch)
        n_tokens = params.ubatch.n_tokens
        self.question_means = new_input("", F32, n_tokens, n_questions)
        self.option_means = new_input("", F32, n_tokens, n_options)
        self.owners = new_input("", I32, n_options)
        self.others = new_input("", F32, n_options, n_questions)
        self.kinds = new_input("", I32, n_questions)
        self.valid = new_input("", F32, 1)

    def set_input(self, ubatch: UBatch) -> None:
        questions, options, found = _owned_options(ubatch)
        n_questions, n_options = _n_both(ubatch)
        owners = np.array(found or [0], np.int32)
        mine = owners == np.arange(n_questions)[:, None]
        kinds = np.array([q.mark - 1 for q in questions] or [0], np.int32)
        valid = bool(questions) or not any(find_spans(ubatch))
        write(self.question_means, _means(questions, n_questions, ubatch.n_tokens))
        write(self.option_means, _means(options, n_options, ubatch.n_tokens))
        write(self.owners, owners)
        write(self.others, np.where(mine, np.float32(0), np.float32(-np.inf)))
        write(self.kinds, kinds)
        write(self.valid, np.array([0 if valid else np.nan], np.float32))

    def can_reuse(self, params: GraphParams) -> bool:
        return (self.kinds.ne[0], self.owners.ne[0]) == _n_both(params.ubatch)


def _owned_options(ubatch: UBatch) -> tuple[list[Span], list[Span], list[int]]:
    """Return questions, options and the question of each option; nothing if the marks do not
    fit."""
    questions, options = find_spans(ubatch)
    owners = [sum(q.first < o.first for q in questions) - 1 for o in options]
    if {*owners} != {*range(len(questions))}:
        return [], [], []
    return questions, options, owners


def _n_both(ubatch: UBatch) -> tuple[int, int]:
    questions, options, _ = _owned_options(ubatch)
    return len(questions) or 1, len(options) or 1


def _means(spans: list[Span], n: int, n_tokens: int) -> npt.NDArray[np.float32]:
    found = np.zeros((n, n_tokens), np.float32)
    for row, span in zip(found, spans, strict=False):
        row[span.first : span.last + 1] = np.float32(1) / np.float32(span.last + 1 - span.first)
    return found
