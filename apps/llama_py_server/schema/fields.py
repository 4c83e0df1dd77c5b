"""Fields of requests: types, limits, and other names (server-schema.cpp)."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llama_py.params.sampling import known_samplers

if TYPE_CHECKING:
    from llama_py.tokenizer import Tokenizer

_UNSET = object()
MAX_TEXTS = 256  # strings of one field; each token is checked for each stop string
MAX_TEXT = 1024  # characters of a stop text
MAX_SAMPLERS = 32  # samplers of a chain; eleven types exist
MAX_BIASES = 1 << 16  # entries of `logit_bias`


@dataclass(frozen=True)
class RequestField:
    """Field of a request. read: converts a JSON value; ValueError has the problem; `default`: keep
    the default"""

    read: Callable[[Any], Any]
    others: tuple[str, ...] = ()
    into: str = ""
    default: Any = _UNSET


def flag() -> RequestField:
    return RequestField(_flag)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, got {value!r}")
    return value


def integer(
    low: int, high: int, others: tuple[str, ...] = (), clamped: bool = False, into: str = ""
) -> RequestField:
    """Return an integer field; outside its limits it is an error, or with `clamped` the limit."""

    def read(value: Any) -> int:
        if isinstance(value, bool) and value is not False:
            raise ValueError(f"must be an integer, got {value!r}")
        if not isinstance(value, int | float) or value != value or abs(value) == math.inf:
            raise ValueError(f"must be an integer, got {value!r}")
        found = int(value)
        if clamped:
            return max(low, min(high, found))
        return int(_check_range(found, low, high))

    return RequestField(read, others, into)


def number(
    low: float = -math.inf,
    high: float = math.inf,
    *,
    into: str = "",
    clamped: bool = True,
    below_is_default: bool = False,
) -> RequestField:
    """Return a number field; outside its limits it is the limit, or without `clamped` an error."""

    def read(value: Any) -> Any:
        found = _finite(value)
        if below_is_default and found < low:
            return _UNSET
        return float(max(low, min(high, found))) if clamped else _check_range(found, low, high)

    return RequestField(read, (), into)


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a number, got {value!r}")
    if not abs(value) <= sys.float_info.max:
        raise ValueError("must be a finite number that fits in float64")
    return float(value)


def _check_range(value: float, low: float, high: float) -> float:
    if not low <= value <= high:
        raise ValueError(f"Value must be between {low} <= value <= {high}, but got {value}")
    return value


def strings(least: int = 0, most: int = MAX_TEXTS) -> RequestField:
    def read(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ValueError("must be an array of strings")
        if len(value) > most:
            raise ValueError(f"must have at most {most} strings, got {len(value)}")
        if len(value) < least:
            raise ValueError("must be a non-empty array of strings")
        return tuple(value)

    return RequestField(read)


def stops() -> RequestField:
    """Return a field of one or several strings; empty strings are ignored."""

    def read(value: Any) -> tuple[str, ...]:
        texts = strings().read([value] if isinstance(value, str) else value)
        if any(len(text) > MAX_TEXT for text in texts):
            raise ValueError(f"strings must have at most {MAX_TEXT} characters")
        return tuple(text for text in texts if text)

    return RequestField(read)


def samplers() -> RequestField:
    """Return a field of sampler names, or a string of their characters; unknown names are
    skipped."""

    def read(value: Any) -> str | tuple[str, ...]:
        if isinstance(value, str) and len(value) > MAX_SAMPLERS:
            raise ValueError(f"must have at most {MAX_SAMPLERS} characters, got {len(value)}")
        names = value if isinstance(value, str) else strings(most=MAX_SAMPLERS).read(value)
        return known_samplers(names)

    return RequestField(read)


def biases(value: Any, tokenizer: Tokenizer) -> dict[int, float]:
    """Parse logit biases `[[token, bias], ...]` or `{token: bias}`, for a token's number or all
    tokens of a text; false forbids. Invalid pairs are ignored, like in llama.cpp."""
    if isinstance(value, dict):
        pairs = [(int(key) if _is_integer(key) else key, bias) for key, bias in value.items()]
    elif isinstance(value, list):
        pairs = [(one[0], one[1]) for one in value if isinstance(one, list) and len(one) == 2]
    else:
        raise ValueError("must be an array of [token, bias] or an object")
    if len(value) > MAX_BIASES:
        raise ValueError(f"must have at most {MAX_BIASES} biases, got {len(value)}")
    found: dict[int, float] = {}
    for what, bias in pairs:
        if bias is True or not isinstance(bias, int | float):
            continue
        bias = -math.inf if bias is False else _finite(bias)
        for id in _parse_ids(what, tokenizer):
            if 0 <= id < tokenizer.n_vocab:
                found[id] = found.get(id, 0.0) + bias
    return found


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _parse_ids(what: Any, tokenizer: Tokenizer) -> list[int]:
    if isinstance(what, str):
        return tokenizer.tokenize(what, False, False)
    return [what] if isinstance(what, int) and not isinstance(what, bool) else []
