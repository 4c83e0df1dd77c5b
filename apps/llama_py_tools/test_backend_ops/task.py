"""Test run for other processes, which find device, judge and cases by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from threadpoolctl import threadpool_limits

from ggml_py.backend import registry
from llama_py_tools.test_backend_ops.filters import select
from llama_py_tools.test_backend_ops.grad import evaluate_grad, unpoisoned_gradients
from llama_py_tools.test_backend_ops.judges import judge
from llama_py_tools.test_backend_ops.pool import DeadJob, in_order
from llama_py_tools.test_backend_ops.run import Outcome, Status, evaluate, unrun_bench

EVALUATE = {"test": evaluate, "grad": evaluate_grad}
BENCHES = {"test": unrun_bench, "grad": unpoisoned_gradients}


@dataclass(frozen=True, slots=True)
class CaseTask:
    """Mode, device and judge, file and filters, seed and host threads of the command line."""

    mode: str
    device: str
    against: str
    file: str
    ops: str | None
    params: str | None
    seed: int
    threads: int | None

    def __call__(self) -> Callable[[int], Outcome]:
        """Return the function that evaluates case i; called once in each process."""
        threadpool_limits(limits=1)  # NumPy's threads: the processes already share the cores
        device, against = registry.device(self.device), judge(self.against)
        if self.threads:
            device.set_threads(self.threads)
        cases = select(self.ops, self.params, False, self.file)
        evaluate = EVALUATE[self.mode]
        return lambda i: evaluate(cases[i], device, against, self.seed)


def in_processes(
    task: Callable[[], Callable[[int], Outcome]], n_cases: int, n_processes: int
) -> Iterator[Outcome]:
    """Yield the outcome of each case, in order; a case that kills its process has failed."""
    for answer in in_order(task, n_cases, n_processes):
        if isinstance(answer, DeadJob):
            yield Outcome(Status.FAIL, f"the process died: {answer.how} ")
        else:
            yield answer
