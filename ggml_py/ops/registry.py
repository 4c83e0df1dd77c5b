"""How an op is declared: one builder function; its name, parameters and aliasing stand in the
decorator.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ggml_py.errors import ShapeError
from ggml_py.tensor import Tensor
from ggml_py.types import GGMLType

Builder = TypeVar("Builder", bound=Callable[..., Any])
OP_PARAMS_SIZE = 64


@dataclass(frozen=True, slots=True)
class OpSpec:
    """What the rest of the system knows about an op.

    fields      names of its parameters, in order
    layout      how they are packed into ggml's 64 bytes of op_params
    inplace     the result may take over the bytes of a dying source of equal layout
    view        the result is only another look at its source: nothing is computed
    """

    name: str
    builder: Callable[..., Any]
    fields: tuple[str, ...]
    layout: struct.Struct
    inplace: bool
    view: bool

    def pack(self, params: tuple[Any, ...]) -> bytes:
        return self.layout.pack(*params).ljust(OP_PARAMS_SIZE, b"\0")


OPS: dict[str, OpSpec] = {}


def op(
    name: str, params: str = "", *, inplace: bool = False, view: bool = False
) -> Callable[[Builder], Builder]:
    """Declare an op. `params` lists fields as `name:code` with struct codes (`i` int32, `f`
    float32,
    `q` int64), `4x` for an unused word: `op("SCALE", "scale:f bias:f")`."""
    tokens = params.split()
    fields = tuple(t.split(":")[0] for t in tokens if ":" in t)
    layout = struct.Struct("<" + "".join(t.split(":")[-1] for t in tokens))

    def register(builder: Builder) -> Builder:
        if name in OPS:
            where = f"{OPS[name].builder.__module__} and {builder.__module__}"
            raise ValueError(f"op {name} is declared twice: {where}")
        OPS[name] = OpSpec(name, builder, fields, layout, inplace, view)
        return builder

    return register


def require(ok: bool, rule: str, *tensors: Tensor | None) -> None:
    """Raise ShapeError with the rule and the tensors unless ok."""
    if not ok:
        raise ShapeError(f"{rule}; got " + ", ".join(str(t) for t in tensors if t is not None))


def node(
    op: str, type: GGMLType, ne: tuple[int, ...], *src: Tensor | None, params: tuple[Any, ...] = ()
) -> Tensor:
    """A new dense result of an op."""
    return Tensor(type, ne, op, src, params)


def view_of(
    op: str,
    base: Tensor,
    *src: Tensor | None,
    params: tuple[Any, ...] = (),
    name: str | None = None,
) -> Tensor:
    """A result that lives in the bytes of `base` (ggml_view_tensor): in-place ops, CPY, SET_ROWS.
    """
    label = f"{base.name} (view)" if name is None else name
    return Tensor(base.type, base.ne, op, src, params, label, base.nb, base, 0)
