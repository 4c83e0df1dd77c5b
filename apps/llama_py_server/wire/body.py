"""The body of a request: a JSON object, and its fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from starlette.requests import Request

from llama_py_server.wire.errors import invalid

T = TypeVar("T")
Body = dict[str, Any]
MOST_NESTED = 128  # brackets in one another


async def json_of(request: Request) -> Any:
    """Return the body as any JSON value; it is read once.

    Raises:
        HTTPError: The body is no JSON, nested too deeply, too large or too slow (`limits.py`).
    """
    try:
        if not hasattr(request.state, "json"):
            data = await request.body()
            request.state.json = found = json.loads(data)
            if data.count(b"[") + data.count(b"{") > MOST_NESTED:
                _check_depth(found)
        return request.state.json
    except (ValueError, RecursionError) as e:
        raise invalid(f"the body of the request is no JSON: {e}") from None


def _check_depth(body: Any) -> None:
    """Raise HTTPError with the name of a field that is nested too deeply."""
    fields = body if isinstance(body, dict) else {"": body}
    for name, level in ((name, [value]) for name, value in fields.items()):
        for _ in range(MOST_NESTED):
            level = [one for many in level for one in _inside(many) if isinstance(one, list | dict)]
            if not level:
                break
        else:
            raise invalid(f"Field '{name}': more than {MOST_NESTED} brackets in one another")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


async def object_of(request: Request) -> Body:
    found = await json_of(request)
    if not isinstance(found, dict):
        raise invalid("the body of the request must be a JSON object")
    return found


def value(body: Mapping[str, Any], name: str, default: T) -> T:
    """A field of the default's type; the default where it is absent, null or of another type
    (server-common.h:json_value)."""
    found = body.get(name)
    if isinstance(found, bool) and not isinstance(default, bool):
        return default
    return found if isinstance(found, type(default)) else default


def text(body: Mapping[str, Any], name: str, default: str = "") -> str:
    return value(body, name, default)


def inner(body: Mapping[str, Any], name: str) -> Body:
    """An object; empty where it is absent, or something else."""
    none: Body = {}
    return value(body, name, none)


def check_unsupported(body: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """HTTPError for a field that would change the response, but is not supported."""
    for name in names:
        if body.get(name) not in (None, False, []):
            raise invalid(f"'{name}' is not supported; leave it out")


def objects(body: Mapping[str, Any], name: str) -> list[Body]:
    """A list of objects; empty where it is absent. HTTPError for anything else."""
    found = body.get(name)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise invalid(f"'{name}' must be an array of objects")
    return found
