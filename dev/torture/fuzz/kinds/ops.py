"""Op cases: one node per line, as numbers."""

from __future__ import annotations

from pathlib import Path
from random import Random

from dev.torture.fuzz import numbers
from dev.torture.fuzz.kind import Case, Kind
from dev.torture.fuzz.models import graphs
from ggml_cpu.backend import devices as cpu_devices
from ggml_ref.backend import devices as ref_devices
from llama_py_tools.test_backend_ops.op_file import lines, read_cases
from llama_py_tools.test_backend_ops.run import evaluate

SMALL = 1 << 22  # bytes of a case that is computed


class OpFiles(Kind):
    """files of op cases (test-backend-ops --test-file)"""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lines = list(lines(graphs(folder)))
        self.cpu, self.ref = cpu_devices()[0], ref_devices()[0]

    def case(self, rng: Random) -> Case:
        words = rng.choice(self.lines).split()
        told = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            at = rng.randrange(len(words))
            what = rng.randrange(8)
            if what == 0:
                del words[at:]
            elif what == 1:
                words.insert(at, str(rng.choice(numbers.INTEGERS)))
            elif what == 2:
                words[at] = rng.choice(("nan", "1.5", "x", "\x1b[2J", "é", "0x10", "٣", "9" * 5000))
            else:
                near = words[at].lstrip("-").isdecimal() and len(words[at]) < 19
                words[at] = str(numbers.integer(rng, int(words[at]) if near else None))
            told.append(f"word {at}")
            if not words:
                break
        line = " ".join(words)
        path = self.folder / "ops.txt"

        def run() -> str:
            path.write_text(line + "\n", errors="surrogateescape")
            found = read_cases(path)
            for one in found:
                graph = one.graph()[0]
                if sum(t.nbytes for t in (*graph.nodes, *graph.leafs)) > SMALL:
                    return "large"
                return str(evaluate(one, self.cpu, self.ref).status)
            return "nothing"

        return Case(f"{', '.join(told)}: {line[:600]!a}", run)
