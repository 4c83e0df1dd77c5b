"""Division of a model among devices: pipeline stages, and tensor or expert parallelism in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from ggml_py.errors import BackendError

FORM = "tp=N, pp=N, ep=N, or several of them with commas between"


@dataclass(frozen=True, slots=True)
class Parallel:
    """Parallelism of devices that share a model: `pp` stages of equally many devices.

    tp  devices of a stage that share heads and FFN dimensions; 1: not shared
    pp  number of pipeline stages, which share the layers
    ep  devices of a stage that share the experts; 1: experts are split by dimensions
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1

    @classmethod
    def parse(cls, given: str | Mapping[str, int]) -> Parallel:
        """Parse an option such as `tp=2,pp=2` or {"tp": 2, "pp": 2}; BackendError if invalid."""
        if isinstance(given, str):
            pairs = (word.partition("=") for word in given.replace("/", ",").split(","))
            numbers = {name.strip(): _number(value) for name, _, value in pairs}
        else:
            numbers = dict(given)
        names = {f.name for f in fields(cls)}
        if not numbers.keys() <= names or any(
            not isinstance(n, int) or n < 1 for n in numbers.values()
        ):
            raise BackendError(f"parallel must be {FORM}, got {given!r}")
        found = cls(**numbers)
        if not {found.tp, found.ep} <= {1, found.size}:
            raise BackendError(
                "parallel: tp and ep must be the same if both are above 1, because a stage's "
                f"devices share heads and experts, got tp={found.tp} and ep={found.ep}"
            )
        return found

    @property
    def size(self) -> int:
        """Devices of a stage."""
        return max(self.tp, self.ep)

    @property
    def n(self) -> int:
        """Number of all devices."""
        return self.pp * self.size


def _number(text: str) -> int:
    return int(text) if text.strip().isdigit() else 0
