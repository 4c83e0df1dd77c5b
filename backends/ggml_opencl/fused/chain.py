"""Fused chains of elementwise nodes, also after matmuls with few columns, norms and convolutions.

The host generates the OpenCL C statements for one element; `kernels/chain/` has the kernels.
"""

from __future__ import annotations

from collections.abc import Callable

from ggml_opencl.conditions import READABLE
from ggml_opencl.ops._elements import NUMBERS, numbers
from ggml_opencl.ops.arithmetic import BINARIES
from ggml_opencl.ops.matrix import is_of_columns, of_columns
from ggml_opencl.table import Launch, defines, fuse, items, table
from ggml_py.fusion.chain import Chain
from ggml_py.fusion.pattern import Match
from ggml_py.tensor import Tensor

SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
HEADS = {
    "MUL_MAT": "matrix",
    "RMS_NORM": "norm",
    "L2_NORM": "norm",
    "NORM": "norm",
    "SSM_CONV": "ssm",
}


def is_by_element(t: Tensor) -> bool:
    if t.op not in BINARIES and t.op not in NUMBERS:
        return False
    return all(s is not None and s.type.name in READABLE for s in (t, *t.src))


def can_begin(t: Tensor) -> bool:
    if t.op == "MUL_MAT" and not is_of_columns(t):
        return False
    return t.op in HEADS and not table.why_not(t)


CHAINS = Chain(is_by_element, can_begin)


class Writer:
    """Writes the statements that compute one element, and collects leaf tensors and scalars."""

    def __init__(self, m: Match) -> None:
        self.match = m
        self.members = {id(t) for t in m.nodes} - {id(t) for t in m.found["head"]}
        self.leaves: dict[str, Tensor] = {}
        self.numbers: list[float] = []
        self.statements: list[str] = []
        self.made: dict[int, str] = {}

    def value(self, t: Tensor) -> str:
        """Return the variable name of a tensor's value; add its statement on first use."""
        if id(t) not in self.made:
            made = self._member(t) if id(t) in self.members else self._read(t)
            self.made[id(t)] = name = f"y{len(self.statements)}"
            self.statements.append(f"const float {name} = {made};")
        return self.made[id(t)]

    def _member(self, t: Tensor) -> str:
        values = [self.value(s) for s in t.sources()]
        if t.op in BINARIES:
            return f" {SIGNS[BINARIES[t.op]]} ".join(values)
        more = "0, 0"
        if NUMBERS[t.op]:
            more = f"p{len(self.numbers)}, p{len(self.numbers) + 1}"
            self.numbers += numbers(t)
        return f"f_{t.op.lower()}({values[0]}, {more})"

    def _read(self, t: Tensor) -> str:
        """Return the head's value, or an element of a leaf, repeated to the result's shape."""
        if t.root in self.match.found["head"]:
            return "v"
        name = f"x{len(self.leaves)}"
        self.leaves[name] = t
        where = "SAME" if t.ne == self.match.result.ne else "REPEATED"
        return f"load_{t.type.name}({where}({name}))"

    def macros(self) -> str:
        """Return the macro definitions required by kernels/chain/_common.cl."""
        y, result = self.value(self.match.result), self.match.result
        statements = [*self.statements, f"const float y = {y}"]
        given = {
            "LEAVES": "".join(f", TENSOR({name})" for name in self.leaves),
            "NUMBERS": "".join(f", const float p{i}" for i in range(len(self.numbers))),
            "CHAIN": " ".join(statements),
            "STORE_Y": f"store_{result.type.name}",
        }
        return "".join(f"#define {name} {text}\n" for name, text in given.items())


def choose_overwrite(m: Match) -> Tensor | None:
    """Return an operand that the result may overwrite, or None.

    The kernel must read its elements only at the position that it writes. This excludes the columns
    of a matmul and the input of a convolution.
    """
    head, y = m.found["head"], m.result
    behind = [s.root for h in head for s in h.src if s is not None and HEADS[h.op] != "norm"]
    found = (s for s in m.operands if s.same_layout(y) and s.root not in behind)
    return next(found, None)


def launch(m: Match, family: str, kernel: str, groups: tuple[int, int, int]) -> Launch:
    """Return the launch of a kernel on the head's sources and the chain's operands."""
    writer = Writer(m)
    macros, heads, y = writer.macros(), m.found["head"], m.result
    sources = [s for h in heads for s in h.sources()]
    first = [float(h.param("eps")) for h in heads if HEADS[h.op] == "norm"]
    given = defines(RESHAPED=int(any(h.ne != y.ne for h in heads)))
    tensors, scalars = (*sources, y, *writer.leaves.values()), (*first, *writer.numbers)
    return Launch(f"chain/{family}", kernel, tensors, groups, scalars, given, macros=macros)


GROUPS: dict[str, Callable[[Tensor], tuple[int, int, int]]] = {
    "matrix": of_columns,
    "norm": lambda head: (head.n_rows, 1, 1),
    "ssm": lambda head: items(head.n_elements),
}


@fuse(CHAINS, over=choose_overwrite)
def chain(m: Match) -> list[Launch]:
    if not m.found["head"]:
        return [launch(m, "elements", "chain", items(m.result.n_elements))]
    (head,) = m.found["head"]
    family = HEADS[head.op]
    return [launch(m, family, f"{head.op.lower()}_chain", GROUPS[family](head))]
