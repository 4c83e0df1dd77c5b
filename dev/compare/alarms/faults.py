"""Faults of one node: one row is 1 % too large."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from dev.compare.alarms.models import LARGE, Outlier
from ggml_py.backend import CompileOptions, Program, Work
from ggml_py.backend.registry import device
from ggml_py.fusion import FusedNodes
from ggml_py.tensor import Tensor
from llama_py.hooks.values import read, write

SIZE = 1.01


@dataclass(frozen=True)
class Fault:
    """A node of a model that its device computes wrong.

    op, type   of the node, and of its first source
    options    of the commands
    """

    op: str
    type: str
    model: Outlier
    options: Sequence[str] = ()

    @property
    def name(self) -> str:
        return f"{self.op} {self.type}, {self.model.name}"

    def node(self, nodes: Sequence[Tensor]) -> str:
        """Return the name of one such node; no other of the graph has it."""
        names = Counter(t.name for t in nodes)
        fits = [
            t.name
            for t in nodes
            if (t.op, t.source(0).type.name if t.src else "") == (self.op, self.type)
            and names[t.name] == 1
            and t.n_elements
        ]
        if not fits:
            raise SystemExit(f"{self.name}: the graph has no such node")
        return fits[len(fits) // 2]


@dataclass
class Planter:
    """Makes one row of a node too large on a device.

    is_inner    True if the node was inside a step, which prevents the fault
    n_planted   number of wrong computations of the node
    """

    node: str
    is_inner: bool = False
    n_planted: int = 0

    def spoil(self, t: Tensor) -> None:
        """Make a row of the middle too large."""
        values = np.array(read(t, [device("cpu")]))
        rows = np.argwhere(np.square(np.nan_to_num(values)).sum(-1))
        if len(rows):
            values[tuple(rows[len(rows) // 2])] *= SIZE
            write(t, values, t.name)
            self.n_planted += 1


@dataclass
class _Programs:
    """Programs one after the other, with the fault after the first."""

    first: Program
    planter: Planter
    t: Tensor
    rest: Program | None

    def run(self) -> None:
        self.first.run()
        self.planter.spoil(self.t)
        if self.rest is not None:
            self.rest.run()


@contextmanager
def planted(node: str, name: str = "cpu") -> Iterator[Planter]:
    """Compute the node wrong on a device, until the end of the block."""
    where, planter = device(name), Planter(node)
    compile = where.compile

    def wrong(steps: list[Work], options: CompileOptions) -> Program:
        for i, step in enumerate(steps):
            inner = step.match.nodes if isinstance(step, FusedNodes) else (step,)
            if not any(t.name == planter.node for t in inner):
                continue
            result = step.match.result if isinstance(step, FusedNodes) else step
            if result.name != planter.node:
                planter.is_inner = True
                continue
            rest = steps[i + 1 :]
            later = compile(rest, options) if rest else None
            return _Programs(compile(steps[: i + 1], options), planter, result, later)
        return compile(steps, options)

    where.compile = wrong  # type: ignore[method-assign]
    try:
        yield planter
    finally:
        del where.compile  # type: ignore[method-assign]


def _large(type: str) -> Outlier:
    return Outlier("llama", "dense", type, 60, LARGE)


def _tiny(arch: str, variant: str, type: str = "Q8_0") -> Outlier:
    return Outlier(arch, variant, type)


PLAIN = ("-fa", "off")
HYBRID, GATED = _tiny("qwen35moe", "moe"), _tiny("gpt-oss", "moe", "MXFP4_MOE")
FAULTS = (
    *(
        Fault("MUL_MAT", type.lower().replace("_k", "_K"), _large(type))
        for type in ("Q4_K", "Q6_K", "Q2_K", "IQ4_XS", "Q4_0", "F16", "BF16", "F32")
    ),
    Fault("MUL_MAT", "q8_0", HYBRID),
    Fault("MUL_MAT", "mxfp4", GATED),
    Fault("MUL_MAT_ID", "q8_0", HYBRID),
    Fault("MUL_MAT_ID", "mxfp4", GATED),
    Fault("FLASH_ATTN_EXT", "f32", HYBRID),
    Fault("FLASH_ATTN_EXT", "f32", _large("Q4_K"), ("-ctk", "q8_0", "-ctv", "q8_0")),
    Fault("GATED_DELTA_NET", "f32", HYBRID),
    Fault("SSM_CONV", "f32", HYBRID),
    Fault("SSM_SCAN", "f32", _tiny("mamba2", "dense")),
    Fault("RWKV_WKV7", "f32", _tiny("rwkv7", "dense")),
    Fault("SOFT_MAX", "f32", _large("Q4_K"), PLAIN),
    Fault("MUL_MAT", "f16", _large("Q4_K"), PLAIN),
    Fault("SET_ROWS", "f32", _large("Q4_K"), PLAIN),
    Fault("CPY", "f32", HYBRID),
    Fault("GET_ROWS", "q4_K", _large("Q4_K")),
    Fault("RMS_NORM", "f32", HYBRID),
    Fault("NORM", "f32", _tiny("rwkv7", "dense")),
    Fault("ROPE", "f32", HYBRID),
    Fault("ADD", "f32", _large("Q4_K")),
    Fault("ADD_ID", "f32", GATED),
    Fault("MUL", "f32", HYBRID),
    Fault("SWIGLU", "f32", HYBRID),
    Fault("SWIGLU_OAI", "f32", GATED),
    Fault("GEGLU", "f32", _tiny("gemma2", "dense")),
    Fault("CONCAT", "f32", HYBRID),
    Fault("SIGMOID", "f32", HYBRID),
)
