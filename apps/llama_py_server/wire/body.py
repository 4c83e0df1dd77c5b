"""Body of a request: a JSON object, and its fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from starlette.requests import Request

from llama_py.support.stopping import iterate_checked
from llama_py_server.wire import work
from llama_py_server.wire.errors import HTTPError, invalid

T = TypeVar("T")
MAX_COST = 1 << 19  # cost limit of a body: parsing it takes 0.2 s and blocks all other threads
MAX_ITEMS = 4096  # length limit of lists that are processed item by item
STEP = 1 << 20  # bytes weighed at a time
Body = dict[str, Any]
MOST_NESTED = 128  # maximum nesting of brackets


async def read_json(request: Request) -> Any:
    """Return the body as any JSON value; it is read once.

    Raises:
        HTTPError: The body is not JSON, nested too deeply, has too many values, or is too large or
            too slow (`limits.py`).
    """
    try:
        if not hasattr(request.state, "json"):
            data = await read_body(request)
            large = len(data) > work.LARGE
            if large:
                await work.read(request, check_cost, data)
                found = await work.read(request, _parse_json, data, kind=work.Work.PARSE)
            else:
                found = json.loads(data)
            if large:
                await work.read(request, _check_depth, found, data)
            else:
                _check_depth(found, data)
            request.state.json = found
            request.state.body = bytearray()
        return request.state.json
    except (ValueError, RecursionError) as e:
        raise invalid(f"the request body is not JSON: {e}") from None


async def read_body(request: Request) -> bytearray:
    """Return the bytes of the body, which `read_json` releases.

    Unlike Starlette's `body`, this does not copy all parts at the end: that blocks all responses
    for 0.3 s if the body has 64 MB.
    """
    if not hasattr(request.state, "body"):
        data = bytearray()
        async for part in request.stream():
            data += part
        request.state.body, request.state.n_body = data, len(data)
    found: bytearray = request.state.body
    return found


def _parse_json(data: bytearray) -> Any:
    """Return the value of JSON text; other threads run between the two steps."""
    return json.loads(data.decode(json.detect_encoding(data), "surrogatepass"))


def _check_depth(body: Any, data: bytearray) -> None:
    """Raise HTTPError with the name of a field that is nested too deeply."""
    if data.count(b"[") + data.count(b"{") <= MOST_NESTED:
        return
    fields = body if isinstance(body, dict) else {"": body}
    for name, level in ((name, [value]) for name, value in fields.items()):
        for _ in range(MOST_NESTED):
            level = [one for many in level for one in _inside(many) if isinstance(one, list | dict)]
            if not level:
                break
        else:
            raise invalid(f"Field '{name}': brackets must be nested at most {MOST_NESTED} levels")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def check_cost(body: bytes | bytearray) -> None:
    """Raise HTTPError for JSON that takes long to parse, by how long its parts take."""
    cost, size, n_escapes = 0, 0, body.count(b"\\")
    for outside in iterate_checked(_outside_strings(body)):
        cost += outside.count(b",") + 2 * (outside.count(b"[") + outside.count(b"{"))
        cost += 4 * sum(map(outside.count, (b":", b".", b"e", b"E")))
        size += len(outside)  # a number may have 4300 digits
        if max(cost, size // 4) + n_escapes // 2 > MAX_COST:
            why = f"the request body has more than {MAX_COST} values"
            counted = "objects and lists count 2, keys and fractions 5"
            raise HTTPError("request_too_large", f"{why} ({counted}); send less per request")


def _outside_strings(body: bytes | bytearray) -> Iterator[bytes]:
    """Yield the bytes of JSON that are in no string."""
    inside, escape = False, b""
    for start in range(0, len(body), STEP):
        part = escape + body[start : start + STEP]
        escape = b"\\" * ((len(part) - len(part.rstrip(b"\\"))) % 2)  # escapes the next part
        part = part[: len(part) - len(escape)].replace(b"\\\\", b"").replace(b'\\"', b"")
        codes = np.frombuffer(part, np.uint8)
        quotes = codes == ord('"')
        hidden = np.logical_xor.accumulate(quotes) != inside
        inside ^= bool(np.count_nonzero(quotes) % 2)
        yield codes[~hidden].tobytes()


async def read_object(request: Request) -> Body:
    found = await read_json(request)
    if not isinstance(found, dict):
        raise invalid("the request body must be a JSON object")
    return found


def value(body: Mapping[str, Any], name: str, default: T) -> T:
    """Return a field of the default's type; the default if it is absent, null or of another type
    (server-common.h:json_value)."""
    found = body.get(name)
    if isinstance(found, bool) and not isinstance(default, bool):
        return default
    return found if isinstance(found, type(default)) else default


def text(body: Mapping[str, Any], name: str, default: str = "") -> str:
    return value(body, name, default)


def inner(body: Mapping[str, Any], name: str) -> Body:
    """Return an object; empty if it is absent or of another type."""
    none: Body = {}
    return value(body, name, none)


def check_unsupported(body: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Raise HTTPError for a field that would change the response but is not supported."""
    for name in names:
        if body.get(name) not in (None, False, []):
            raise invalid(f"'{name}' is not supported; omit it")


def check_length(name: str, n: int, most: int = MAX_ITEMS) -> None:
    """Raise HTTPError for a list with too many items."""
    if n > most:
        raise invalid(f"Field '{name}': must have at most {most} items, got {n}")


def objects(body: Mapping[str, Any], name: str) -> list[Body]:
    """Return a list of objects; empty if it is absent. HTTPError for other types."""
    found = body.get(name)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise invalid(f"'{name}' must be an array of objects")
    return found
