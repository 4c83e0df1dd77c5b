"""Checks of each feature of a client, which print one JSON line per feature.

A script defines a function for each feature and calls `run`. Its argument is the server's address.
Annotations of `weather` are not strings, because clients read them.
"""

import json
import math
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Literal

FEATURES = ("chat", "stream", "tools", "schema", "embeddings", "logprobs")
URL = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8080"
OPENAI, MODEL, KEY = f"{URL}/v1", "demo", "none"
SECONDS = 120  # of each feature

ASK = "Good morrow, Juliet."
QUESTION = "How is the weather here?"  # the template begins a call after it
RESULT = "It is sunny."
PLACES = ("here", "there")
TEXTS = ["Two households", "a glooming peace"]

MESSAGES = [{"role": "user", "content": ASK}]
QUESTIONS = [{"role": "user", "content": QUESTION}]
PLACE = {"type": "string", "enum": list(PLACES)}
PARAMETERS = {"type": "object", "properties": {"place": PLACE}, "required": ["place"]}
FUNCTION = {"name": "weather", "description": "Weather of a place.", "parameters": PARAMETERS}
TOOL = {"type": "function", "function": FUNCTION}
SCHEMA = {
    "type": "object",
    "properties": {"place": PLACE, "sunny": {"type": "boolean"}},
    "required": ["place", "sunny"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA}}
calls: list[str] = []


def weather(place: Literal["here", "there"]) -> str:
    """Weather of a place.

    Args:
        place: here or there
    """
    calls.append(place)
    return RESULT


def check_text(text: object) -> str:
    """Return a text that is not blank."""
    assert isinstance(text, str), f"a text, got {text!r}"
    assert text.strip(), "a blank text"
    return text


def check_parts(parts: Iterable[str | None]) -> str:
    """Return a text that arrived in several parts."""
    found = [part for part in parts if part]
    assert len(found) > 1, f"a stream of several parts, got {found!r}"
    return check_text("".join(found))


def check_call(answer: object = RESULT) -> str:
    """Return the text that follows a call of `weather`."""
    assert calls, f"no call of the tool; the response was {answer!r}"
    assert calls[-1] in PLACES, f"the argument {calls[-1]!r}"
    return check_text(answer)


def check_weather(value: Any) -> str:
    """Return an object of the schema as JSON."""
    if isinstance(value, str):
        value = json.loads(value)
    elif not isinstance(value, Mapping):
        value = {"place": value.place, "sunny": value.sunny}
    assert value["place"] in PLACES and isinstance(value["sunny"], bool), f"got {value!r}"
    return json.dumps(value)


def check_vectors(rows: Sequence[Sequence[float]]) -> str:
    """Return the sizes of two different vectors."""
    first, second = ([float(x) for x in row] for row in rows)
    assert len(first) == len(second) > 1 and first != second
    assert all(map(math.isfinite, (*first, *second)))
    return f"2 x {len(first)}"


def check_logprobs(values: Iterable[float]) -> str:
    """Return the number of log probabilities."""
    found = [float(x) for x in values]
    assert len(found) > 1 and all(x <= 0 for x in found), f"log probabilities, got {found!r}"
    return f"{len(found)} tokens"


def run(package: str, **features: Callable[[], str]) -> None:
    """Print a line for each feature. A feature that the client does not offer is omitted."""
    head = {"client": package, "version": version(package)}
    for name in FEATURES:
        ok, said = attempt(features[name]) if name in features else (None, "")
        print(json.dumps({**head, "feature": name, "ok": ok, "said": said}), flush=True)


def attempt(feature: Callable[[], str]) -> tuple[bool, str]:
    """Return True and the function's text, or False and its error."""
    calls.clear()
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, stop)
        signal.alarm(SECONDS)
    try:
        return True, feature()[:200]
    except Exception as e:
        return False, " ".join(f"{type(e).__name__}: {e}".split())[:400]
    finally:
        if hasattr(signal, "SIGALRM"):
            signal.alarm(0)


def stop(*_: object) -> None:
    raise TimeoutError(f"no end within {SECONDS} s")
