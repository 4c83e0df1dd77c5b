"""Known differences of the real ggml, with reasons.

Each one is declared next to its cases, in `cases/<family>.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llama_py_tools.test_backend_ops.case import Case, value_text


@dataclass(frozen=True, slots=True)
class CaseDifference:
    """Cases of `op` with parameters that all have a value in `where`.

    crashes   True if ggml ends the process without a message: the case must not run
    """

    op: str
    why: str
    where: dict[str, Sequence[Any]]
    crashes: bool

    def covers(self, case: Case) -> bool:
        return case.op == self.op and all(
            name in case.args and case.args[name] in values for name, values in self.where.items()
        )

    def cases(self) -> str:
        """Return `axis=1|2|3`, similar to printed cases."""
        return ",".join(f"{n}={'|'.join(map(value_text, v))}" for n, v in self.where.items())


DIFFERENCES: list[CaseDifference] = []
IGNORES_STRIDES = "assumes a contiguous source"


def differs_from_ggml(op: str, why: str, **where: Sequence[Any]) -> None:
    """Declare cases with values other than ggml's; ggml is the subject of `why`."""
    DIFFERENCES.append(CaseDifference(op, why, where, crashes=False))


def crashes_ggml(op: str, why: str, **where: Sequence[Any]) -> None:
    """Declare cases that crash ggml."""
    DIFFERENCES.append(CaseDifference(op, why, where, crashes=True))


def known_difference(case: Case) -> CaseDifference | None:
    return next((d for d in DIFFERENCES if d.covers(case)), None)
