"""Recorder of the calls and lines of llama_py that make each tensor."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import llama_py
from ggml_py.opspec import OPS
from ggml_py.tensor import Tensor

PACKAGE = Path(llama_py.__file__).parent
ROOMS = ("models", "blocks", "graph", "adapters")  # modules that make nodes
Step = tuple["Call", int]  # a call, and its line that ran


@dataclass(slots=True, eq=False)
class Call:
    """One call of a function in `ROOMS`.

    Attributes:
        code: Function that runs.
        owner: Class name of its `self`, or "".
        il: Layer number that it gets as argument `il`, or None.
        lines: Line numbers that it runs.
    """

    code: CodeType
    owner: str
    il: int | None
    lines: set[int] = field(default_factory=set)


@dataclass(slots=True)
class MadeTensor:
    """A tensor, the calls that make it (outermost first), and the arguments of its op's builder."""

    tensor: Tensor
    steps: tuple[Step, ...]
    arguments: dict[str, Any]


class CallRecorder:
    """Recorder of tensors created while `record` runs, by id, in order of creation."""

    def __init__(self) -> None:
        self.made: dict[int, MadeTensor] = {}
        self._live: dict[FrameType, Call] = {}

    @contextmanager
    def record(self) -> Iterator[None]:
        """Trace this thread's calls and the creation of tensors."""
        create, trace = Tensor.__init__, sys.gettrace()

        def create_and_note(t: Tensor, *args: Any, **more: Any) -> None:
            create(t, *args, **more)
            self._note(t, sys._getframe(1))

        Tensor.__init__ = create_and_note  # type: ignore[assignment, method-assign]
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(trace)
            Tensor.__init__ = create  # type: ignore[method-assign]
            self._live.clear()

    def _note(self, t: Tensor, frame: FrameType | None) -> None:
        builder = _builder(t.op)
        steps: list[Step] = []
        arguments: dict[str, Any] = {}
        while frame is not None:
            if frame in self._live:
                steps.append((self._live[frame], frame.f_lineno))
            elif builder is not None and frame.f_code is builder[0]:
                arguments = {name: frame.f_locals.get(name) for name in builder[1]}
            frame = frame.f_back
        self.made[id(t)] = MadeTensor(t, tuple(reversed(steps)), arguments)

    def _enter(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if code.co_name.startswith("<") or not room(code):  # comprehensions belong to their caller
            return None
        names, known = code.co_varnames[: code.co_argcount], frame.f_locals
        il = known["il"] if "il" in names else None
        owner = type(known["self"]).__name__ if "self" in names else ""
        call = Call(code, owner, il if isinstance(il, int) and il >= 0 else None)
        self._live[frame] = call

        def step(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
            if event == "line":
                call.lines.add(frame.f_lineno)
            elif event == "return":
                self._live.pop(frame, None)
            return step

        return step


@cache
def room(code: CodeType) -> str:
    """Return the folder of llama_py that has the function, or "" outside of `ROOMS`."""
    path = Path(code.co_filename)
    if not path.is_relative_to(PACKAGE):
        return ""
    first = path.relative_to(PACKAGE).parts[0]
    return first if first in ROOMS else ""


@cache
def _builder(op: str) -> tuple[CodeType, tuple[str, ...]] | None:
    """Return the code of an op's builder, and the names of its arguments."""
    if op not in OPS:
        return None
    builder = inspect.unwrap(OPS[op].builder)
    return builder.__code__, tuple(inspect.signature(builder).parameters)
