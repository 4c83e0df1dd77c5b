"""Base class of objects that release memory or files at the end of a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING

from llama_py.support.hints import Hinting

if TYPE_CHECKING:
    from typing_extensions import Self


class Resource(Hinting, ABC):
    """Closed when its `with` ends."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources; the object is unusable afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
