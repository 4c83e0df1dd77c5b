"""Jinja sandbox with limits on the time and memory of a template.

A template from a file can nest loops (`range` of `range`), double a text in every iteration, or
create a billion spaces. Each value is counted when it is created: operators, calls, filters, lists
and every loop iteration are checked here, by hooks of the sandbox and by rewriting the parsed
template.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from threading import local
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import LoopContext
from jinja2.sandbox import MAX_RANGE, SandboxedEnvironment, SandboxedFormatter
from jinja2.visitor import NodeTransformer

STEPS = 1_000_000  # loop iterations, calls and operators of a rendering
SECONDS = 10.0
WEIGHT = 1 << 27  # characters and items of all values in a rendering
LARGEST = 1 << 22  # limit of one value
ITEMS = 1 << 18  # items of one value, nested items included
NUMBER = 1 << 20  # limit of numeric arguments of filters and methods: a width, a count
SLOW_FROM = 1 << 16  # characters at which filters with repeated scans are refused
SLOW = ("pprint", "striptags", "urlize", "wordwrap")
_WIDE = re.compile(r"\d{6}|\*")  # wide number or `*` in a format specification


class RenderBounds:
    """Time and memory used by one rendering."""

    def __init__(self) -> None:
        self.steps, self.made, self.end = 0, 0, time.monotonic() + SECONDS

    def step(self, n: int = 1) -> None:
        self.steps += n
        if self.steps > STEPS:
            raise SecurityError(f"the template takes more than {STEPS} steps; check its loops")
        if time.monotonic() > self.end:
            raise SecurityError(f"the template takes longer than {SECONDS:g} s; check its loops")

    def make(self, n: int) -> None:
        check_size(n)
        self.made += n
        if self.made > WEIGHT:
            raise SecurityError(
                f"the template creates strings and lists of more than {WEIGHT} characters in total"
            )


def check_size(n: int) -> None:
    if n > LARGEST:
        raise SecurityError(
            f"the template creates a string or list of more than {LARGEST} characters"
        )


def check_number(*values: Any) -> None:
    for value in values:
        if isinstance(value, int) and abs(value) > NUMBER:
            raise SecurityError(f"number beyond {NUMBER} passed to a filter or method")


def weight(value: Any) -> int:
    """Count characters and items of a value, repeated parts included; more than LARGEST for more
    than ITEMS. Values that record their use (caps.py) do not notice."""
    total, todo, seen = 0, [value], 0
    while todo and total <= LARGEST:
        one = todo.pop()
        seen += 1
        if seen > ITEMS:
            return LARGEST + 1
        if isinstance(one, str | bytes):
            total += len(one)
        elif isinstance(one, dict):
            total += len(one)
            todo += dict.keys(one)
            todo += dict.values(one)
        elif isinstance(one, list):
            total += len(one)
            todo += list.__iter__(one)
        elif isinstance(one, tuple | set | frozenset):
            total += len(one)
            todo += one
        elif isinstance(one, int):
            total += one.bit_length() // 8
    return total


class _Turns:
    """Iterable of a loop; each iteration counts as a step and a minimum of output."""

    def __init__(self, bounds: RenderBounds, items: Iterable[Any], n: int) -> None:
        self.bounds, self.items, self.n = bounds, items, n

    def __iter__(self) -> Iterator[Any]:
        for item in self.items:
            self.bounds.step()
            if self.n:
                self.bounds.make(self.n)
            yield item

    def __len__(self) -> int:
        return len(self.items)  # type: ignore[arg-type]  # only of those that have one


class _Rewriter(NodeTransformer):
    """Lets a template's loops, lists and joined texts go through filters of the sandbox."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        written = sum(len(text.data) for text in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        node.iter = _make_filter("_turns", node.iter, nodes.Const(written))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _make_filter("_concat", nodes.List(node.nodes))

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _make_filter("_count_value", node) if isinstance(node.arg, nodes.Slice) else node

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _make_filter("_count_value", node) if node.items else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _make_filter("_count_value", node) if node.items else node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _make_filter("_count_value", node) if node.ctx == "load" and node.items else node


def _make_filter(name: str, node: Any, *args: nodes.Expr) -> nodes.Filter:
    lineno = node.lineno or 1
    return nodes.Filter(node, name, list(args), [], None, None, lineno=lineno)


class _Formatter(SandboxedFormatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        if _WIDE.search(format_spec):
            raise SecurityError(f"format width in {format_spec[:20]!r} is too large")
        text = super().format_field(value, format_spec)
        env: Any = self._env
        env.bounds.make(len(text))
        return text


class BoundedSandbox(SandboxedEnvironment):
    """One rendering at a time and thread is between `start` and the end of its text."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self, **options: Any) -> None:
        super().__init__(optimized=False, finalize=self._render_output, **options)
        self._local = local()
        self.globals.pop("lipsum")
        names = {"_turns": self._turns, "_concat": self._concat, "_count_value": self._count_value}
        self.filters = {
            name: self._limit_filter(name, f) for name, f in self.filters.items()
        } | names

    def start(self) -> None:
        """Start the limits of a rendering."""
        self._local.bounds = RenderBounds()

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        self.filters[name] = self._limit_filter(name, function)

    @property
    def bounds(self) -> RenderBounds:
        bounds: RenderBounds = self._local.bounds
        return bounds

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        found: nodes.Template = _Rewriter().visit(tree)
        return found.set_environment(self)  # type: ignore[return-value]

    def _turns(self, items: Any, n: int = 0) -> Any:
        found = _Turns(self.bounds, items, n)
        return found if isinstance(items, Sized) else iter(found)

    def _concat(self, parts: list[Any]) -> str:
        self.bounds.step()
        self.bounds.make(sum(map(weight, parts)))
        return "".join(map(self.render_value, parts))

    def render_value(self, value: Any) -> str:
        """Return the text that an operand of `~` or a printed value adds."""
        return str(value)

    def _count_value(self, value: Any) -> Any:
        """Count a new value; iterators are counted item by item."""
        self.bounds.step()
        self.bounds.make(weight(value))
        return self._turns(value) if isinstance(value, Iterator) else value

    @pass_context
    def _render_output(self, context: Any, value: Any) -> Any:
        self.bounds.step()
        text = self.render_value(value)
        self.bounds.make(len(text))
        return text

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            for a, b in ((left, right), (right, left)):
                if isinstance(a, int) and not isinstance(b, int | float):
                    check_size(max(a, 0) * max(weight(b), 1))
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            check_size(left.bit_length() * max(right, 0))
        elif operator == "%" and isinstance(left, str):
            _check_percent(left, right)
        elif operator == "+":
            check_size(weight(left) + weight(right))
        return self._count_value(super().call_binop(context, operator, left, right))

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        __self.bounds.step()
        owner = getattr(__obj, "__self__", None)
        if isinstance(__obj, LoopContext):  # `loop(items)` of a recursive loop
            args = tuple(__self._turns(a) for a in args)
        elif isinstance(owner, str | bytes | list | tuple | dict):
            _check_call(__obj.__name__, owner, (*args, *kwargs.values()))
        return __self._count_value(super().call(__context, __obj, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if super().wrap_str_format(value) is None:
            return None
        text, by_map = value.__self__, value.__name__ == "format_map"

        def call(*args: Any, **kwargs: Any) -> str:
            args, kwargs = ((), args[0]) if by_map and args else (args, kwargs)
            check_size(text.count("{") * weight([*args, *kwargs.values()]))
            return _Formatter(self).vformat(text, args, kwargs)

        return call

    def _limit_filter(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a filter with limits on its arguments and result."""
        skipped = int(hasattr(function, "jinja_pass_arg"))

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            value, *more = args[skipped:]
            _check_filter(name, value, (*more, *kwargs.values()))
            return self._count_value(function(*args, **kwargs))

        return call


def _check_filter(name: str, value: Any, args: tuple[Any, ...]) -> None:
    size = weight(value)
    if name in SLOW and size > SLOW_FROM:
        raise SecurityError(f"{name} of {size} characters exceeds the limit of {SLOW_FROM}")
    if name == "format":
        _check_percent(str(value), args)
    elif name == "sum" and any(not isinstance(a, int | float | str) for a in args):
        check_size(size * size)  # lists that are added are copied each time
    _check_call(name, value, args)


def _check_call(name: str, value: Any, args: tuple[Any, ...]) -> None:
    """Raise an error before a call makes something larger than its inputs allow."""
    size = weight(value)
    more = max((weight(a) for a in args), default=0)
    check_number(*args)
    if name == "replace" and args:
        turns = value.count(str(args[0])) if isinstance(value, str) else size
        check_size(size + turns * more)
    elif name == "join":
        by_text = isinstance(value, str) and args and not isinstance(args[0], str)
        between, items = (value, args[0]) if by_text else (args[0] if args else "", value)
        n = len(items) if isinstance(items, Sized) else MAX_RANGE
        check_size(weight(items) + n * weight(between))
    elif name in ("translate", "indent", "expandtabs", "tojson"):
        numbers = [abs(a) for a in args if isinstance(a, int)]
        check_size(size * max([more if name == "translate" else 1, *numbers]))


def _check_percent(text: str, values: Any) -> None:
    if any(_WIDE.search(part[:40]) for part in text.split("%")[1:]):
        raise SecurityError(f"format width in {text[:40]!r} is too large")
    check_size(len(text) + text.count("%") * weight(values))
