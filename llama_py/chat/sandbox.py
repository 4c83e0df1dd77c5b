"""Jinja sandbox for untrusted templates from files.

It follows llama.cpp's engine (common/jinja of llama-cpp-python 0.3.36) if that differs from
Jinja:
* An undefined value has undefined attributes. Its methods and filters return an empty value
  (EMPTY), the methods of `none` an empty list.
* `none` and undefined values print as empty text; `none|default('x')` is x.
* A whole float is `2` by `tojson`, `string` and `safe`, `2.0` if printed.
* `split()` splits at each space and keeps empty pieces; `%` has the sign of the dividend.

In other points it behaves like Jinja, because model authors test with Jinja: a printed list or
dictionary is Python's literal (llama.cpp joins a list's items and prints no dictionary), floats
keep all digits (1000000, which llama.cpp writes as 1e+06; it cuts to six),
`tojson(sort_keys=true)` works.

A template may change lists and dictionaries: it gets copies. Its resources are limited (bounds.py).
"""

from __future__ import annotations

import datetime
import json
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, NoReturn

from jinja2 import ChainableUndefined, TemplateError, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context

from llama_py.chat.bounds import BoundedSandbox

MOMENT = datetime.datetime(2026, 1, 1)  # constant time for tests of templates


class Missing(ChainableUndefined):
    """An undefined value or its attribute."""

    __slots__ = ("_attribute",)

    def __init__(self, *args: Any, attribute: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._attribute = attribute

    def __getattr__(self, name: str) -> Missing:
        super().__getattr__(name)  # raises for names of Python's protocols
        return Missing(
            self._undefined_hint, self._undefined_obj, self._undefined_name, attribute=name
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._attribute in EMPTY:
            return EMPTY[self._attribute]()
        if self._attribute == "default" and args:
            return args[0]
        if self._undefined_obj is None and self._undefined_name in OF_NONE:
            return []
        return self._fail_with_undefined_error()


# Types of the results of an undefined value's methods (value.cpp:value_undefined_t::get_builtins).
EMPTY: dict[str, type] = {
    **dict.fromkeys(
        ("capitalize", "join", "lower", "replace", "safe", "string", "strip", "title", "truncate",
         "upper"), str),
    **dict.fromkeys(
        ("items", "list", "map", "reject", "rejectattr", "reverse", "select", "selectattr", "sort",
         "unique"), list),
    **dict.fromkeys(("length", "sum", "wordcount"), int),
    **dict.fromkeys(("first", "last", "max", "min"), Missing),
}  # fmt: skip
# methods that return an empty list (value.cpp:value_none_t::get_builtins)
OF_NONE = frozenset(("items", "map", "reject", "rejectattr", "select", "selectattr", "unique"))


class Sandbox(BoundedSandbox):
    """Sandbox that compiles and runs templates."""

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=Missing,
            extensions=["jinja2.ext.loopcontrols", Generation],
        )
        for name in ("default", "d"):
            self.add_filter(name, with_default)
        for name in ("string", "safe"):
            self.add_filter(name, as_text)
        self.add_filter("tojson", to_json)
        self.add_filter("random", choose_random)
        self.globals |= {"raise_exception": refuse, "strftime_now": strftime_now}

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        """Raise an error; Jinja's result would be undefined, with undefined attributes."""
        raise SecurityError(
            f"attribute {attribute!r} of {type(obj).__name__} is not allowed in a template"
        )

    def _turns(self, items: Any, n: int = 0) -> Any:
        """Return a copy of the items at the start of a loop."""
        if isinstance(items, Undefined):
            return items
        return super()._turns([*items] if isinstance(items, list | Mapping) else items, n)

    def render_value(self, value: Any) -> str:
        return "" if value is None else str(value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+" and (isinstance(left, str) or isinstance(right, str)):
            left, right = self.render_value(left), self.render_value(right)
        if operator == "%" and isinstance(left, int | float) and isinstance(right, int | float):
            found = super().call_binop(context, operator, abs(left), abs(right))
            return -found if left < 0 else found
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        owner, name = (getattr(__obj, key, None) for key in ("__self__", "__name__"))
        if isinstance(owner, str) and name in ("split", "rsplit") and not args:
            args = () if "sep" in kwargs else (" ",)
        return super().call(__context, __obj, *args, **kwargs)

    def _limit_filter(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Make a filter return an empty value for an undefined one, if llama.cpp's filter does."""
        skipped = int(hasattr(function, "jinja_pass_arg"))

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            value = args[skipped]
            if isinstance(value, Undefined) and name in EMPTY:
                return EMPTY[name]()
            return [] if value is None and name in OF_NONE else function(*args, **kwargs)

        return super()._limit_filter(name, call)


class Generation(Extension):
    """Jinja tag `{% generation %}`, which marks text to train on: its body, unchanged."""

    tags = {"generation"}  # noqa: RUF012  Jinja's way

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def with_default(value: Any, default: Any = "", boolean: bool = False) -> Any:
    missing = not value if boolean else value is None or isinstance(value, Undefined)
    return default if missing else value


def as_text(value: Any) -> str:
    """Return a value as text; also for `safe`, as values are not escaped."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return to_json(value) if number else str(value)


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Convert to JSON; unlike Jinja's, keep `<` and non-ASCII letters, and write 1.0 as `1`."""
    return json.dumps(
        _convert_integers(value),
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        default=_json_value,
    )


def _convert_integers(value: Any) -> Any:
    """Turn whole floats into integers: as C++ writes them, but no digits are lost."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return int(value)
    if isinstance(value, Mapping):
        return {k: _convert_integers(v) for k, v in value.items()}
    return [_convert_integers(v) for v in value] if isinstance(value, list | tuple) else value


def _json_value(value: Any) -> Any:
    """Convert values that JSON lacks: undefined to null, iterators to lists."""
    if isinstance(value, Undefined):
        return None
    return [_convert_integers(v) for v in value]


def refuse(message: str) -> NoReturn:
    raise TemplateError(str(message))  # errors now, since a loop may run the template's own code


@contextmanager
def always_the_same() -> Iterator[None]:
    """Make templates deterministic in this thread within `with`: time is fixed, random choices take
    the first item."""
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


def strftime_now(format: str, days: int = 0) -> str:
    """Return the time; `days`, which only Go templates use, are added."""
    return ((MOMENT if _STILL.is_so else now()) + datetime.timedelta(days)).strftime(format)


def choose_random(items: Any) -> Any:
    """Return a random item; undefined for an empty list."""
    found = [*items]
    if not found:
        return Missing("the list to choose from is empty")
    return found[0] if _STILL.is_so else random.choice(found)
