"""Base class of sampler stages that depend on earlier tokens."""

from __future__ import annotations

from collections import deque

from llama_py.sampler.candidates import SamplerStage


class Recent(SamplerStage):
    """Keeps the last `last_n` accepted tokens."""

    def __init__(self, last_n: int) -> None:
        self._last: deque[int] = deque(maxlen=last_n)

    def accept(self, id: int, drawn: bool) -> None:
        self._last.append(id)

    def reset(self) -> None:
        self._last.clear()
