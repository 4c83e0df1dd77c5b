"""Specification of an op for the rest of the system. Ops declare themselves in `ggml_py/ops`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

Builder = TypeVar("Builder", bound=Callable[..., Any])
OP_PARAMS_SIZE = 64
ROWS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class OpSpec:
    """Specification of one op.

    fields      parameter names, in order
    layout      struct that packs them into ggml's 64 bytes of op_params
    inplace     the result may take over the bytes of a dying source of equal layout
    view        True if the result is only a view of its source
    writes      numbers of the sources that the op changes in addition to its result
    at_weights  it must run on its weight's device; False if that weight is too small to decide
    batch       dimensions of the result; their product is the batch size
    reads       maximum bytes that a node reads from its sources; None: all (traffic.py)
    flops       multiplications and additions of a node; None if they are not its main cost
    rounds      (i, j): if source i has 16 bits or fewer, kernels may round source j alike; or ()
    """

    name: str
    builder: Callable[..., Any]
    fields: tuple[str, ...]
    layout: struct.Struct
    inplace: bool
    view: bool
    writes: tuple[int, ...] = ()
    at_weights: bool = True
    batch: tuple[int, ...] = ROWS
    reads: Callable[[Any], int] | None = None
    flops: Callable[[Any], float] | None = None
    rounds: tuple[int, ...] = ()

    def pack(self, params: tuple[Any, ...]) -> bytes:
        return self.layout.pack(*params).ljust(OP_PARAMS_SIZE, b"\0")


OPS: dict[str, OpSpec] = {}


def op(
    name: str,
    params: str = "",
    *,
    inplace: bool = False,
    view: bool = False,
    writes: Iterable[int] = (),
    at_weights: bool = True,
    batch: tuple[int, ...] = ROWS,
    reads: Callable[[Any], int] | None = None,
    flops: Callable[[Any], float] | None = None,
    rounds: tuple[int, ...] = (),
) -> Callable[[Builder], Builder]:
    """Declare an op. `params` lists fields as `name:code` with struct codes (`i` int32, `f`
    float32, `q` int64), `4x` for an unused word: `op("SCALE", "scale:f bias:f")`.
    """
    tokens = params.split()
    fields = tuple(t.split(":")[0] for t in tokens if ":" in t)
    layout = struct.Struct("<" + "".join(t.split(":")[-1] for t in tokens))

    def register(builder: Builder) -> Builder:
        if name in OPS:
            where = f"{OPS[name].builder.__module__} and {builder.__module__}"
            raise ValueError(f"op {name} is declared twice: {where}")
        OPS[name] = OpSpec(
            name,
            builder,
            fields,
            layout,
            inplace,
            view,
            tuple(writes),
            at_weights,
            batch,
            reads,
            flops,
            rounds,
        )
        return builder

    return register
