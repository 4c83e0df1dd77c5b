"""How Numba types a call of a helper (`@fn`): it is compiled once for each list of argument types.

Kernels that this process compiles later share it, and so do helpers of the same content.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, ClassVar

from numba.core import compiler, types
from numba.core.errors import TypingError
from numba.core.registry import cpu_target
from numba.core.typing.templates import AbstractTemplate, Signature

from ggml_cpu.kernel import REGISTRY, Function
from ggml_cpu.passes import Pipeline, flags
from ggml_cpu.shares import content

Compiled = dict[tuple[types.Type, ...], tuple[Signature, Callable[..., None]] | None]

_KNOWN: dict[Hashable, Compiled] = {}  # by the content of helpers


class _Helper(AbstractTemplate):
    """The base of one class a helper, as Numba wants it."""

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
    """The signature, and what the lowering of calls finds the compiled helper by."""
    typing, lowering = cpu_target.typing_context, cpu_target.target_context
    result = compiler.compile_extra(
        typing, lowering, function, args, None, flags(), {}, pipeline_class=Pipeline
    )
    name = no_entry()
    lowering.insert_user_function(name, result.fndesc, [result.library])
    return result.signature, name


def no_entry(*compiled: object) -> Callable[..., None]:
    """What stands for a helper's entry point: Numba keeps one, of a builtin type, by identity."""
    return [].append


def register_helpers() -> None:
    """Tell Numba of the helpers declared since the last kernel."""
    for function in REGISTRY.new_helpers():
        known = _KNOWN.setdefault(content(function), {})
        members = {"key": staticmethod(function), "known": known}
        template = type(f"Helper_{function.__name__}", (_Helper,), members)
        cpu_target.typing_context.insert_global(function, types.Function(template))
