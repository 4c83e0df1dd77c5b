"""Questions of /v1/systemone (server-decision.cpp:parse_questions)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from llama_py.text.decide import KINDS, MOST_LEVELS, Decider, Question, QuestionOption
from llama_py_server.schema.media import decode_data_url
from llama_py_server.wire.body import Body, check_length
from llama_py_server.wire.errors import HTTPError, invalid, not_supported

MAX_QUESTIONS = 256  # of a request; each has a prompt with the state
MAX_IMAGES = 8
Keep = Callable[[Any], None]


class DecisionRequest(NamedTuple):
    """A state without its images, the questions, and the images."""

    state: Any
    questions: list[Question]
    images: list[bytes]


def parse_questions(body: Body, decider: Decider, sees: bool) -> DecisionRequest:
    """Return the state and the questions of a request. HTTPError for wrong fields.

    sees  the model takes images
    """
    if "state" not in body or (body["state"] is None and decider.type.needs_state):
        raise invalid('"state" must be provided')
    given = body.get("questions")
    if not isinstance(given, dict) or not given:
        raise invalid('"questions" must be a non-empty object')
    check_length("questions", len(given), MAX_QUESTIONS)
    questions = [_parse_question(name, one, decider) for name, one in given.items()]
    images: list[bytes] = []
    state = _take_images(body, lambda url: images.append(_image(url, len(images))))
    if images and (decider.type.rows or not sees):
        raise not_supported(
            "This server does not support image input for decisions. For a model that supports it, "
            "start it with `--mmproj`"
        )
    return DecisionRequest(state, questions, images)


def _take_images(body: Body, keep: Keep) -> Any:
    """Keep all images of a request, and return its state without them."""
    if body.get("videos"):
        raise invalid('"videos" is not supported')
    for name in ("files", "images"):
        urls = body.get(name)
        if urls is not None and not isinstance(urls, list):
            raise invalid(f'"{name}" must be an array')
        for url in urls or []:
            keep(url)
    state = body["state"]
    wrapped = isinstance(state, dict) and "messages" in state
    messages = state["messages"] if wrapped else state
    if not isinstance(messages, list):
        return state
    messages = [_keep_text(one, keep) for one in messages]
    return {**state, "messages": messages} if wrapped else messages


def _keep_text(message: Any, keep: Keep) -> Any:
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    return {**message, "content": [*_other_parts(message["content"], keep)]}


def _other_parts(parts: list[Any], keep: Keep) -> Iterator[Any]:
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "input_audio" and kind in part:
            raise invalid("audio is not supported for decisions; send text or images")
        if kind != "image_url" or kind not in part:
            yield part
            continue
        url = part[kind]
        keep(url["url"] if isinstance(url, dict) and "url" in url else url)


def _image(url: Any, n: int) -> bytes:
    if not isinstance(url, str) or not url.startswith("data:"):
        raise invalid(
            "images must be data URLs (data:image/...;base64,... or data:audio/...;base64,...)"
        )
    if n >= MAX_IMAGES:
        raise invalid(f"too many images, the maximum is {MAX_IMAGES}")
    return decode_data_url(url)


def _parse_question(name: str, given: Any, decider: Decider) -> Question:
    if not isinstance(given, dict):
        raise _wrong(name, "must be an object")
    instructions = given.get("instructions")
    if instructions is None:
        raise _wrong(name, '"instructions" must be provided')
    kind = given.get("type")
    if kind not in KINDS:
        raise _wrong(name, f'"type" must be one of: {", ".join(KINDS)}')
    criteria = given.get("criteria")
    if kind == "noul":
        options = _sides(name, criteria, decider.type.named_sides)
    else:
        options = (_choices if kind == "choice" else _levels)(name, criteria)
    if kind == "noul" and not decider.type.true_first:
        options.reverse()
    if kind == "choice" and decider.type.rows == "joint":
        options.sort(key=lambda option: option.key)
    if len(options) > decider.max_options:
        why = f"too many options ({len(options)}), this model supports at most "
        raise _wrong(name, f"{why}{decider.max_options}")
    return Question(name, kind, instructions, options)


def _choices(name: str, criteria: Any) -> list[QuestionOption]:
    if not isinstance(criteria, dict) or not criteria:
        raise _wrong(name, '"criteria" must be a non-empty object')
    return [QuestionOption(key, description) for key, description in criteria.items()]


def _levels(name: str, criteria: Any) -> list[QuestionOption]:
    if not isinstance(criteria, list) or not 2 <= len(criteria) <= MOST_LEVELS:
        raise _wrong(name, f'"criteria" must be an array of 2 to {MOST_LEVELS} levels')
    return [QuestionOption(str(i), description) for i, description in enumerate(criteria)]


def _sides(name: str, criteria: Any, named: bool) -> list[QuestionOption]:
    """Return the options of a yes or no question; named: "yes" and "no" also describe them."""
    if criteria is not None and not isinstance(criteria, dict):
        raise _wrong(name, '"criteria" must be an object')
    others = {"true": "yes", "false": "no"} if named else {}
    given = criteria or {}
    return [
        QuestionOption(key, given.get(key if key in given else others.get(key)))
        for key in ("true", "false")
    ]


def _wrong(name: str, why: str) -> HTTPError:
    return invalid(f"questions.{name}: {why}")
