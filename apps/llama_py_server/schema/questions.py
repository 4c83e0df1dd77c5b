"""Questions of /v1/systemone (server-decision.cpp:parse_questions)."""

from __future__ import annotations

from typing import Any

from llama_py.text.decide import KINDS, LABELS, MOST_LEVELS, Question, QuestionOption
from llama_py_server.wire.body import Body, check_length
from llama_py_server.wire.errors import HTTPError, invalid, not_supported

MAX_QUESTIONS = 256  # of a request; each has a prompt with the state


def parse_questions(body: Body) -> tuple[Any, list[Question]]:
    """Return the state and the questions of a request. HTTPError for wrong fields."""
    if body.get("state") is None:
        raise invalid('"state" must be provided')
    given = body.get("questions")
    if not isinstance(given, dict) or not given:
        raise invalid('"questions" must be a non-empty object')
    check_length("questions", len(given), MAX_QUESTIONS)
    _check_media(body)
    return body["state"], [_parse_question(name, one) for name, one in given.items()]


def _check_media(body: Body) -> None:
    for name in ("images", "videos"):
        if not isinstance(body.get(name) or [], list):
            raise invalid(f'"{name}" must be an array')
    if body.get("videos"):
        raise invalid('"videos" is not supported')
    if body.get("images"):
        raise not_supported("This server does not support image input for decisions; send text")


def _parse_question(name: str, given: Any) -> Question:
    if not isinstance(given, dict):
        raise _wrong(name, "must be an object")
    kind = given.get("type")
    if kind not in KINDS:
        raise _wrong(name, f'"type" must be one of: {", ".join(KINDS)}')
    instructions = given.get("instructions")
    if instructions is None:
        raise _wrong(name, '"instructions" must be provided')
    options = {"choice": _choices, "score": _levels, "noul": _sides}[kind](
        name, given.get("criteria")
    )
    if len(options) > len(LABELS):
        why = f"too many options ({len(options)}), this model supports at most {len(LABELS)}"
        raise _wrong(name, why)
    return Question(name, kind, instructions, options)


def _choices(name: str, criteria: Any) -> list[QuestionOption]:
    if not isinstance(criteria, dict) or not criteria:
        raise _wrong(name, '"criteria" must be a non-empty object')
    return [QuestionOption(key, description) for key, description in criteria.items()]


def _levels(name: str, criteria: Any) -> list[QuestionOption]:
    if not isinstance(criteria, list) or not 2 <= len(criteria) <= MOST_LEVELS:
        raise _wrong(name, f'"criteria" must be an array of 2 to {MOST_LEVELS} levels')
    return [QuestionOption(str(i), description) for i, description in enumerate(criteria)]


def _sides(name: str, criteria: Any) -> list[QuestionOption]:
    if criteria is not None and not isinstance(criteria, dict):
        raise _wrong(name, '"criteria" must be an object')
    return [QuestionOption(key, (criteria or {}).get(key)) for key in ("true", "false")]


def _wrong(name: str, why: str) -> HTTPError:
    return invalid(f"questions.{name}: {why}")
