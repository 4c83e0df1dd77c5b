"""Totals of a test run on one device."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from ggml_py.ops.registry import OPS
from llama_py_tools.test_backend_ops.case import Case
from llama_py_tools.test_backend_ops.differences import known_difference
from llama_py_tools.test_backend_ops.run import Outcome, Status


@dataclass(slots=True)
class Totals:
    """Cases of a device by their outcome; `command` runs them all again."""

    against: str
    command: list[str]
    compared: list[Case] = field(default_factory=list)
    failed: list[Case] = field(default_factory=list)
    known: list[Case] = field(default_factory=list)
    n_not_supported: int = 0

    def add(self, case: Case, outcome: Outcome) -> None:
        if outcome.status is Status.NOT_SUPPORTED:
            self.n_not_supported += 1
            return
        self.compared.append(case)
        if outcome.status is Status.FAIL:
            self.failed.append(case)
        elif outcome.status is Status.KNOWN:
            self.known.append(case)

    @property
    def n_passed(self) -> int:
        return len(self.compared) - len(self.failed)

    def coverage(self) -> str:
        """Return `112 ops, 5000 cases compared with ref: 4998 equal, 2 not; 3 not supported`."""
        n_ops = len({c.op for c in self.compared} & set(OPS))
        n_equal = self.n_passed - len(self.known)
        counts = [f"{n_equal} equal"]
        counts += [f"{len(self.known)} known to differ"] if self.known else []
        counts += [f"{len(self.failed)} not"] if self.failed else []
        return (
            f"{n_ops} ops, {len(self.compared)} cases compared with {self.against}: "
            f"{', '.join(counts)}; {self.n_not_supported} not supported"
        )

    def differences(self) -> list[str]:
        """Return the known differences, each with its reason."""
        found = ((case, known_difference(case)) for case in self.known)
        return [f"{case}: ggml {known.why}" for case, known in found if known is not None]

    def commands(self) -> list[str]:
        """Return commands that repeat each failure, with the same inputs."""
        return [shlex.join([*self.command, "-o", str(case)]) for case in self.failed]
