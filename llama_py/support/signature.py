"""Functions that take a dataclass's fields as keywords, with that signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")
S = TypeVar("S")
X = TypeVar("X")


def takes(
    params: Callable[P, Any],
) -> Callable[[Callable[Concatenate[S, X, ...], R]], Callable[Concatenate[S, X, P], R]]:
    """Declare, for type checkers and help, that **options are the fields of `params`."""

    def declare(function: Callable[Concatenate[S, X, ...], R]) -> Callable[Concatenate[S, X, P], R]:
        return describe(function, params)

    return declare


def describe_options(params: Callable[..., Any]) -> Callable[[F], F]:
    """Declare, for help only, that **options are the fields of `params`."""
    return lambda function: describe(function, params)


def describe(function: F, params: Callable[..., Any]) -> F:
    """Show a function's **options in help and `inspect.signature`: the fields of `params`."""
    signature = inspect.signature(function)
    plain = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    names = {p.name for p in plain}
    fields = inspect.signature(params).parameters.values()
    added = [p for p in fields if p.name not in names]
    function.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*plain, *added]
    )
    return function
