"""Interfaces of objects that a user may pass to choose tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Logits = npt.NDArray[np.float32]  # [n_vocab]
    LogitsProcessor = Callable[[Sequence[int], Logits], Logits]  # (all tokens, logits)


class Thinking(NamedTuple):
    """Reasoning at the beginning of a response, or its possible beginning.

    start, ends  tags before and after the reasoning
    answer       mark of the content in a response without reasoning
    after        mark of the content after reasoning
    spaces       white space that may follow the reasoning: this string, or True: any
    inside       the prompt has the start tag, so the response begins with reasoning
    may_begin    the model may start reasoning
    most         maximum reasoning tokens; None: no limit
    spaced       a space may follow each special token in these texts
    """

    start: str
    ends: tuple[str, ...]
    answer: str = ""
    spaces: str | bool = True
    inside: bool = False
    after: str = ""
    may_begin: bool = True
    most: int | None = None
    spaced: bool = False


class Chooser(Protocol):
    """Interface of an object that picks the next token (`llama_py.Sampler`)."""

    def sample(self, logits: Logits) -> int: ...

    def accept(self, id: int) -> None: ...


@runtime_checkable
class Answers(Protocol):
    """Interface of a sampler that is notified of each response's start, and checks drafts."""

    def begin(self, thinking: Thinking | None = None) -> None: ...

    def n_allowed(self, ids: Sequence[int]) -> int: ...


@runtime_checkable
class ConstrainedSampler(Protocol):
    """Interface of a sampler with a constraint, which may determine the end of a response."""

    @property
    def is_constrained(self) -> bool: ...
