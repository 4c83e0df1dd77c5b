"""Interfaces of objects that a user may pass to choose tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Logits = npt.NDArray[np.float32]  # [n_vocab]
    LogitsProcessor = Callable[[Sequence[int], Logits], Logits]  # (tokens so far, logits)


class Thinking(NamedTuple):
    """The thoughts that an answer begins with, or may begin with.

    start, ends  the tags around them
    answer       what marks the content of an answer without them
    after        what marks it after them
    spaces       white space that may follow them: this, or True: any
    inside       the answer begins in them: the prompt has the tag
    may_begin    whether the model may open them itself
    most         most tokens of them; None: no limit
    """

    start: str
    ends: tuple[str, ...]
    answer: str = ""
    spaces: str | bool = True
    inside: bool = False
    after: str = ""
    may_begin: bool = True
    most: int | None = None


class Chooser(Protocol):
    """Interface of an object that picks the next token (`llama_py.Sampler`)."""

    def sample(self, logits: Logits) -> int: ...

    def accept(self, id: int) -> None: ...


@runtime_checkable
class Answers(Protocol):
    """Interface of a sampler that is told of each response's start, and checks drafts."""

    def begin(self, thinking: Thinking | None = None) -> None: ...

    def n_allowed(self, ids: Sequence[int]) -> int: ...
