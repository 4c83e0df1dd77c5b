"""What a user may give to choose tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Logits = npt.NDArray[np.float32]  # [n_vocab]
    LogitsProcessor = Callable[[Sequence[int], Logits], Logits]  # (tokens so far, logits)


class Chooser(Protocol):
    """What picks the next token (`llama_py.Sampler`)."""

    def sample(self, logits: Logits) -> int: ...

    def accept(self, id: int) -> None: ...
