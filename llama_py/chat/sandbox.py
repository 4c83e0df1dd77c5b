"""Jinja's sandbox for templates out of files that nobody has read.

Names, filters and meanings are those of llama.cpp's engine (common/jinja/runtime.cpp, value.cpp)
where they differ from Jinja's: what is undefined has undefined attributes, and nothing or undefined
adds nothing to a text. A template may change lists and dictionaries: it is given copies. What it
may do is bounded, so that one without end is an error.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce, wraps
from typing import Any, NoReturn

from jinja2 import ChainableUndefined, TemplateError, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_STEPS = 1_000_000  # of all loops together
MAX_LENGTH = 1 << 24  # of a text, or of a list
WIDEST = 1 << 16  # that a text is filled up to
WIDE = re.compile(r"%[^a-zA-Z%]*(\*|\d{4})")


class Sandbox(SandboxedEnvironment):
    """What templates are compiled in and run by."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, undefined=ChainableUndefined,
            extensions=["jinja2.ext.loopcontrols", Generation],
        )  # fmt: skip
        self.n_steps = 0
        self.filters |= {"tojson": to_json, "counted": self.counted}
        for name in ("center", "indent", "batch", "slice", "wordwrap", "tojson"):
            self.filters[name] = _narrow(name, self.filters[name])
        self.globals |= {"raise_exception": refuse, "strftime_now": strftime_now}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Meanings().visit(super()._parse(source, name, filename))
        return tree.set_environment(self)  # type: ignore[return-value]

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        """Jinja's would be undefined, whose attributes are undefined too: no error at all."""
        raise SecurityError(f"{attribute!r} of a {type(obj).__name__} is no part of a template")

    def counted(self, items: Any) -> Any:
        """The items as they are when a loop begins; SecurityError after too many of all loops."""
        if isinstance(items, Undefined):
            return items
        return self._counted([*items] if isinstance(items, list | Mapping) else items)

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.n_steps += 1
            if self.n_steps > MAX_STEPS:
                raise SecurityError(f"it loops more than {MAX_STEPS:,} times")
            yield item

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        text = getattr(obj, "__self__", None)
        if isinstance(text, str):
            _check_method(text, (*args, *kwargs.values()))
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+" and (isinstance(left, str) or isinstance(right, str)):
            left, right = _text(left), _text(right)
        _check_size(operator, left, right)
        return super().call_binop(context, operator, left, right)


class _Meanings(NodeTransformer):
    """Every loop counts its steps; `a ~ b` is the text `"" + a + b`."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, "counted", [], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        line = node.lineno
        start: nodes.Expr = nodes.Const("", lineno=line)
        return reduce(lambda a, b: nodes.Add(a, b, lineno=line), node.nodes, start)


class Generation(Extension):
    """`{% generation %}`, which marks what a model is trained on: its body, as it is."""

    tags = {"generation"}  # noqa: RUF012  Jinja's way

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _text(value: Any) -> str:
    """What an operand of `+` and `~` adds to a text."""
    return "" if value is None else str(value)


def _check_size(operator: str, left: Any, right: Any) -> None:
    """SecurityError for operands whose result could be large."""
    n = 0
    if operator == "+" and isinstance(left, str | list | tuple):
        n = len(left) + len(right)
    elif operator == "*":
        some, times = (left, right) if isinstance(right, int) else (right, left)
        n = len(some) * times if isinstance(some, str | list | tuple) else 0
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        n = left.bit_length() * abs(right)
    elif operator == "%" and isinstance(left, str) and WIDE.search(left):
        raise SecurityError("a text is formatted with a width of more than 999")
    if n > MAX_LENGTH:
        raise SecurityError(f"`{operator}` makes something of more than {MAX_LENGTH:,} characters")


def _check_method(text: str, args: tuple[Any, ...]) -> None:
    """SecurityError for arguments of a text's method that could make it large."""
    n = max(
        (a if isinstance(a, int) else len(a) for a in args if isinstance(a, int | str)), default=0
    )
    if n > WIDEST and (len(text) + 1) * n > MAX_LENGTH:
        raise SecurityError(f"a text is made of more than {MAX_LENGTH:,} characters")


def _narrow(name: str, f: Any) -> Any:
    """A filter that widens text, of bounded width."""

    @wraps(f)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for n in (*args, *kwargs.values()):
            if isinstance(n, int) and n > WIDEST:
                raise SecurityError(f"{name}: {n} is more than {WIDEST:,}")
        return f(*args, **kwargs)

    return checked


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
    raise TemplateError(message)


def now() -> datetime.datetime:
    return datetime.datetime.now()


def strftime_now(format: str) -> str:
    return now().strftime(format)
