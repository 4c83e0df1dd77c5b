"""Fields of requests: types, limits, and other names (server-schema.cpp)."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ggml_py.errors import ModelError
from llama_py.params.sampling import known_samplers
from llama_py_server.schema.json_schemas import STRING, STRINGS, Schema
from llama_py_server.wire.errors import HTTPError, invalid

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
    the default; schema: JSON schema of the values, for /openapi.json"""

    read: Callable[..., Any]
    others: tuple[str, ...] = ()
    into: str = ""
    default: Any = _UNSET
    schema: Schema = field(default_factory=dict)


Fields = Mapping[str, RequestField | Schema]  # of a request, by name


def by_name(fields: Mapping[str, RequestField]) -> dict[str, RequestField]:
    """Return fields by all their names."""
    return {name: f for first, f in fields.items() for name in (first, *f.others)}


def flag() -> RequestField:
    return RequestField(_flag, schema={"type": "boolean"})


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

    schema = {"type": "integer"} if clamped else {"type": "integer", **_limits(low, high)}
    return RequestField(read, others, into, schema=schema)


def _limits(low: float, high: float) -> dict[str, float]:
    """Return the limits of a JSON schema; infinite limits are absent."""
    given = {"minimum": low, "maximum": high}
    return {name: value for name, value in given.items() if math.isfinite(value)}


def number(
    low: float = -math.inf,
    high: float = math.inf,
    *,
    into: str = "",
    others: tuple[str, ...] = (),
    clamped: bool = True,
    below_is_default: bool = False,
) -> RequestField:
    """Return a number field; outside its limits it is the limit, or without `clamped` an error."""

    def read(value: Any) -> Any:
        found = _finite(value)
        if below_is_default and found < low:
            return _UNSET
        return float(max(low, min(high, found))) if clamped else _check_range(found, low, high)

    schema = {"type": "number"} if clamped else {"type": "number", **_limits(low, high)}
    return RequestField(read, others, into, schema=schema)


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

    return RequestField(read, schema={**STRINGS, "minItems": least, "maxItems": most})


def choice(*names: str) -> RequestField:
    """Return a field with a fixed set of names."""

    def read(value: Any) -> str:
        if value not in names:
            raise ValueError(f"must be in {', '.join(names)}, got {value!r}")
        return str(value)

    return RequestField(read, schema={"enum": list(names)})


def absent(why: str) -> RequestField:
    """Return a field that must be null or absent."""

    def read(value: Any) -> None:
        raise ValueError(why)

    return RequestField(read, schema={"type": "null"})


def read_fields(body: Mapping[str, Any], fields: Mapping[str, RequestField]) -> dict[str, Any]:
    """Return the values of the fields that a request has and that are not null, by their names in
    the engine. HTTPError for a wrong value names its field."""
    found = {}
    for name, f in fields.items():
        given = next((n for n in (name, *f.others) if body.get(n) is not None), None)
        if given is None:
            continue
        value = parse_field(given, f, body[given])
        if value is not f.default:
            found[f.into or name] = value
    return found


def parse_field(name: str, f: RequestField, value: Any) -> Any:
    """Return the value of a field; HTTPError for a wrong value."""
    try:
        return f.read(value)
    except (HTTPError, ModelError, ValueError, TypeError, KeyError) as e:
        raise invalid(f"Field '{name}': {e}") from None


def stops() -> RequestField:
    """Return a field of one or several strings; empty strings are ignored."""

    def read(value: Any) -> tuple[str, ...]:
        texts = strings().read([value] if isinstance(value, str) else value)
        if any(len(text) > MAX_TEXT for text in texts):
            raise ValueError(f"strings must have at most {MAX_TEXT} characters")
        return tuple(text for text in texts if text)

    return RequestField(read, schema={"anyOf": [STRING, {**STRINGS, "maxItems": MAX_TEXTS}]})


def samplers() -> RequestField:
    """Return a field of sampler names, or a string of their characters; unknown names are
    skipped."""

    def read(value: Any) -> str | tuple[str, ...]:
        if isinstance(value, str) and len(value) > MAX_SAMPLERS:
            raise ValueError(f"must have at most {MAX_SAMPLERS} characters, got {len(value)}")
        names = value if isinstance(value, str) else strings(most=MAX_SAMPLERS).read(value)
        return known_samplers(names)

    return RequestField(read, schema={"anyOf": [STRING, {**STRINGS, "maxItems": MAX_SAMPLERS}]})


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
