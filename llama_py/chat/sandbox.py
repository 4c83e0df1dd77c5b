"""Jinja's sandbox for templates out of files that nobody has read.

Names, filters and meanings are those of llama.cpp's engine (common/jinja/runtime.cpp, value.cpp)
where they differ from Jinja's: what is undefined has undefined attributes, and nothing or undefined
adds nothing to a text. A template may change lists and dictionaries: it is given copies. What it
may do is bounded (bounds.py), so that one without end is an error.
"""

from __future__ import annotations

import datetime
import json
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from jinja2 import ChainableUndefined, TemplateError, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context

from llama_py.chat.bounds import BoundedSandbox

MOMENT = datetime.datetime(2026, 1, 1)  # at which time stands still

class Sandbox(BoundedSandbox):
    """What templates are compiled in and run by."""

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, undefined=ChainableUndefined,
            extensions=["jinja2.ext.loopcontrols", Generation],
        )  # fmt: skip
        self.add_filter("tojson", to_json)
        self.add_filter("random", chosen)
        self.globals |= {"raise_exception": refuse, "strftime_now": strftime_now}

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        """Jinja's would be undefined, whose attributes are undefined too: no error at all."""
        raise SecurityError(f"{attribute!r} of a {type(obj).__name__} is no part of a template")

    def _turns(self, items: Any, n: int = 0) -> Any:
        """The items as they are when a loop begins."""
        if isinstance(items, Undefined):
            return items
        return super()._turns([*items] if isinstance(items, list | Mapping) else items, n)

    def text_of(self, value: Any) -> str:
        return "" if value is None else str(value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+" and (isinstance(left, str) or isinstance(right, str)):
            left, right = self.text_of(left), self.text_of(right)
        return super().call_binop(context, operator, left, right)


class Generation(Extension):
    """`{% generation %}`, which marks what a model is trained on: its body, as it is."""

    tags = {"generation"}  # noqa: RUF012  Jinja's way

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike Jinja's own, leaves `<` and non-ASCII letters as they are; 1.0 is `1`."""
    return json.dumps(
        _plain(value), ensure_ascii=ensure_ascii, indent=indent, separators=separators,
        sort_keys=sort_keys, default=_listed,
    )  # fmt: skip


def _plain(value: Any) -> Any:
    """Numbers without a fraction as C++ writes them: no digits are lost."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e6:
        return int(value)
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def _listed(value: Any) -> Any:
    """What JSON has no word for: undefined is null, what filters give in turn is a list."""
    if isinstance(value, Undefined):
        return None
    return [_plain(v) for v in value]


def refuse(message: str) -> NoReturn:
    raise TemplateError(str(message))  # now: of a loop that may run the template's own code


@contextmanager
def always_the_same() -> Iterator[None]:
    """Meanwhile, in this thread, a template makes the same of the same: time stands still, and what
    is chosen at random is the first."""
    before, _STILL.is_so = _STILL.is_so, True
    try:
        yield
    finally:
        _STILL.is_so = before


class _Still(threading.local):
    is_so = False


_STILL = _Still()


def now() -> datetime.datetime:
    return datetime.datetime.now()


def strftime_now(format: str) -> str:
    return (MOMENT if _STILL.is_so else now()).strftime(format)


def chosen(items: Any) -> Any:
    """One at random; of nothing, undefined."""
    found = [*items]
    if not found:
        return ChainableUndefined("there is nothing to choose from")
    return found[0] if _STILL.is_so else random.choice(found)
