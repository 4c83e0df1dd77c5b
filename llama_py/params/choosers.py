"""What a user may give to choose tokens."""

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
    answer       where an answer begins after them, if that is marked too
    spaces       whether spaces after them belong to the tags
    inside       the answer begins in them: the prompt has the tag
    """

    start: str
    ends: tuple[str, ...]
    answer: str = ""
    spaces: bool = True
    inside: bool = False


class Chooser(Protocol):
    """What picks the next token (`llama_py.Sampler`)."""

    def sample(self, logits: Logits) -> int: ...

    def accept(self, id: int) -> None: ...


@runtime_checkable
class Answers(Protocol):
    """What has to know when an answer begins, and what a draft may have: the same Sampler."""

    def begin(self, thinking: Thinking | None = None) -> None: ...

    def n_allowed(self, ids: Sequence[int]) -> int: ...
