"""Common steps of every builder: declare its op, check its rule, make its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from ggml_py._moved import former_names
from ggml_py.errors import ShapeError
from ggml_py.opspec import OPS as OPS
from ggml_py.opspec import op as op
from ggml_py.tensor import Tensor
from ggml_py.types import GGMLType


def require(ok: bool, rule: str, *tensors: Tensor | None) -> None:
    """Raise ShapeError with the rule and the tensors unless ok."""
    if not ok:
        refuse(rule, *tensors)


def refuse(rule: str, *tensors: Tensor | None) -> NoReturn:
    """Raise ShapeError with the rule and the tensors, for rules that are slow to format."""
    raise ShapeError(f"{rule}; got " + ", ".join(str(t) for t in tensors if t is not None))


def node(
    op: str, type: GGMLType, ne: tuple[int, ...], *src: Tensor | None, params: tuple[Any, ...] = ()
) -> Tensor:
    """Return a new dense result of an op."""
    t = Tensor(type, ne, op, src, params)
    whole_blocks(t)
    return t


def whole_blocks(t: Tensor) -> None:
    """Raise ShapeError if a row is not a whole number of its type's blocks (ggml_row_size)."""
    n = t.type.block_size
    if t.ne[0] % n:
        refuse(f"{t.op.lower()}: a row of {t.type} must be a multiple of {n} elements", t)


def view_result(
    op: str,
    base: Tensor,
    *src: Tensor | None,
    params: tuple[Any, ...] = (),
    name: str | None = None,
) -> Tensor:
    """Return a result in the bytes of `base` (ggml_view_tensor): in-place ops, CPY, SET_ROWS."""
    label = f"{base.name} (view)" if name is None else name
    return Tensor(base.type, base.ne, op, src, params, label, base.nb, base, 0)


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, view_of="view_result")
