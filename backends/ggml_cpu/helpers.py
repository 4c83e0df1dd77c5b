"""Numba typing of helper calls (`@fn`): a helper is compiled once per tuple of argument types.

Later kernels in this process reuse the result; so do helpers with equal content (shares.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from types import FunctionType
from typing import Any, ClassVar

from numba.core import compiler, types
from numba.core.errors import TypingError
from numba.core.registry import cpu_target
from numba.core.typing.templates import AbstractTemplate, Signature

from ggml_cpu.kernel import REGISTRY, Function
from ggml_cpu.passes import Pipeline, flags
from ggml_cpu.shares import content

Compiled = dict[tuple[types.Type, ...], tuple[Signature, Callable[..., None]] | None]

_KNOWN: dict[Hashable, Compiled] = {}  # by helper content (shares.py)
_DECLARED: set[Function] = set()
_TYPES: dict[Function, types.Function] = {}


class _Helper(AbstractTemplate):
    """Base class of the Numba template of a helper; Numba needs one class per helper."""

    key: ClassVar[Function]
    known: ClassVar[Compiled]

    def generic(self, args: tuple[types.Type, ...], kws: dict[str, types.Type]) -> Signature:
        if kws:
            raise TypingError(f"helpers take no keyword arguments: {', '.join(kws)}")
        if args not in self.known:
            self.known[args] = None
            try:
                self.known[args] = _compile(type(self).key, args)
            finally:
                if self.known[args] is None:
                    del self.known[args]
        found = self.known[args]
        if found is None:
            raise TypingError("a helper that calls itself cannot be inlined")
        return found[0]

    def get_impl_key(self, sig: Signature) -> Callable[..., None]:
        found = self.known[sig.args]
        assert found is not None
        return found[1]

    def get_template_info(self) -> dict[str, Any]:
        function = type(self).key
        code = function.__code__
        return {
            "kind": "helper",
            "name": function.__qualname__,
            "sig": ", ".join(code.co_varnames[: code.co_argcount]),
            "filename": code.co_filename,
            "lines": (code.co_firstlineno, code.co_firstlineno),
            "docstring": function.__doc__,
        }


def _compile(
    function: Function, args: tuple[types.Type, ...]
) -> tuple[Signature, Callable[..., None]]:
    """Compile a helper; return its signature and the key that lowering finds it by."""
    typing, lowering = cpu_target.typing_context, cpu_target.target_context
    result = compiler.compile_extra(
        typing, lowering, function, args, None, flags(), {}, pipeline_class=Pipeline
    )
    name = no_entry()
    lowering.insert_user_function(name, result.fndesc, [result.library])
    return result.signature, name


def no_entry(*compiled: object) -> Callable[..., None]:
    """Return a new builtin as placeholder of an entry point; Numba compares these by identity."""
    return [].append


def helper_type(value: object) -> types.Function | None:
    """Return the Numba function type of a helper; None for other values.

    Types are created on first use: a kernel calls dozens of the thousands of declared helpers.
    """
    if type(value) is not FunctionType:
        return None
    if REGISTRY.helpers:
        _DECLARED.update(REGISTRY.new_helpers())
    if value in _DECLARED and value not in _TYPES:
        known = _KNOWN.setdefault(content(value), {})
        members = {"key": staticmethod(value), "known": known}
        _TYPES[value] = types.Function(type(f"Helper_{value.__name__}", (_Helper,), members))
    return _TYPES.get(value)
