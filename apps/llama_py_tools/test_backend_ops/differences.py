"""Known differences of the real ggml, with reasons.

Told next to the cases that it is about, in `cases/<family>.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llama_py_tools.test_backend_ops.case import Case, text_of


@dataclass(frozen=True, slots=True)
class CaseDifference:
    """Cases of `op` whose parameters all have one of the values in `where`.

    crashes   ggml ends the process without a word: it is not to be asked
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
        return ",".join(f"{n}={'|'.join(map(text_of, v))}" for n, v in self.where.items())


DIFFERENCES: list[CaseDifference] = []
IGNORES_STRIDES = "takes its source to be contiguous"


def differs_from_ggml(op: str, why: str, **where: Sequence[Any]) -> None:
    """Tell of cases whose values are not ggml's; `why` has ggml as its subject."""
    DIFFERENCES.append(CaseDifference(op, why, where, crashes=False))


def crashes_ggml(op: str, why: str, **where: Sequence[Any]) -> None:
    """Tell of cases that ggml does not survive."""
    DIFFERENCES.append(CaseDifference(op, why, where, crashes=True))


def known_difference(case: Case) -> CaseDifference | None:
    return next((d for d in DIFFERENCES if d.covers(case)), None)
