"""Base classes of the messages from rank 0 to another rank."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

Self = TypeVar("Self", bound="Word")


@dataclass(frozen=True, kw_only=True)
class Word:
    """A message with the number of its question, or 0 if no answer is expected."""

    number: int = 0

    def replace_number(self: Self, number: int) -> Self:
        return replace(self, number=number)


@dataclass(frozen=True, kw_only=True)
class Order(Word, ABC):
    """A message that makes a rank do something."""

    meets: ClassVar[bool] = False  # True if another rank waits for the result

    @abstractmethod
    def obey(self, here: Any) -> Any:
        """Do the work in the rank that got the order; the result is the answer to a question."""


@dataclass(frozen=True, kw_only=True)
class Settle(Order):
    """A request for the rank's failure, which is part of every answer."""

    def obey(self, here: Any) -> None:
        return


@dataclass(frozen=True, kw_only=True)
class EndProcess(Word):
    """The program is over."""
