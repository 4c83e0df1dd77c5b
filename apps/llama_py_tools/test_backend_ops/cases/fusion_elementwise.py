"""Small graphs of norms and elementwise ops that a backend may run as one kernel."""

from __future__ import annotations

from collections.abc import Callable

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, uniform

Shape = tuple[int, ...]
BF16 = BY_NAME["bf16"]
ROWS: list[Shape] = [(64, 5, 4, 3), (1025, 5, 1, 1)]
EPS = [0.0, 1e-4, 1.0]


def _fused_bound(type: GGMLType, **_: object) -> float:
    """Return the error bound: a kernel may keep f32 although the chain rounds."""
    return {"f32": 5e-7, "f16": 5e-5}.get(type.name, 5e-3)


@case("RELU_SQR", fused=True, max_nmse=_fused_bound, type=[F32, F16],
      ne=[(128, 2, 2, 2), (5, 7, 11, 13)])
def relu_sqr(new: Leaves, type: GGMLType, ne: Shape) -> Tensor:
    return ops.sqr(ops.relu(new(ne, type)))


@case("SOFTCAP", fused=True, ne=[(10, 10, 10, 10), (257, 3, 1, 1)], cap=[50.0])
def softcap(new: Leaves, ne: Shape, cap: float) -> Tensor:
    return ops.scale(ops.tanh(ops.scale(new(ne), 1 / cap)), cap)


@case("SNAKE_FUSE", fused=True, max_nmse=_fused_bound, type=[F32, F16, BF16], ne=[(5, 7, 1, 1),
      (33, 32, 1, 1), (1025, 13, 1, 1), (64, 32, 2, 1), (64, 32, 1, 2)])
def snake(new: Leaves, type: GGMLType, ne: Shape) -> Tensor:
    """Build x + sin(a x)^2 / b, with a and b per channel."""
    x, a, inverse_b = new(ne, type, uniform(-3, 3)), new((1, ne[1])), new((1, ne[1]))
    return ops.add(x, ops.mul(ops.sqr(ops.sin(ops.mul(x, a))), inverse_b))


LAYOUTS = ["dense", "a_half", "b_half", "halves", "planes", "row", "tiles", "gate"]


def _operands(new: Leaves, type: GGMLType, ne: Shape, layout: str) -> tuple[Tensor, Tensor]:
    if layout == "halves":
        both = new((2 * ne[0], *ne[1:]), type)
        first, second = (
            ops.view_4d(both, *ne, *both.nb[1:], i * ne[0] * type.type_size)  # type: ignore[call-arg]
            for i in range(2)
        )
        return first, second
    halves = {"a_half": 0, "planes": 1}
    if layout in halves:
        return new.second_half(ne, halves[layout], type), new(ne, type)
    if layout == "b_half":
        return new(ne, type), new.second_half(ne, 0, type)
    ne_a = (1, *ne[1:]) if layout == "gate" else ne
    ne_b = {"row": ne[:1], "tiles": (ne[0] // 4, *ne[1:])}.get(layout, ne)
    return new(ne_a, type), new(ne_b, type)


def _declare_unary_mul(name: str, function: Callable[[Tensor], Tensor]) -> None:
    @case(f"{name}_MUL", fused=True, max_nmse=_fused_bound, type=[F32, F16, BF16],
          ne=[(128, 2, 2, 2)], layout=LAYOUTS, swap=[False], tail=[""])
    @case(f"{name}_MUL", fused=True, max_nmse=_fused_bound, type=[F32, F16, BF16],
          ne=[(128, 2, 2, 2)], layout=["dense", "b_half", "halves"], swap=[True],
          tail=["", "other", "again"])
    @case(f"{name}_MUL", fused=True, max_nmse=_fused_bound, type=[F32, F16, BF16],
          ne=[(5, 7, 11, 13)], layout=["dense"], swap=[False], tail=["", "other", "again"])
    def unary_mul(
        new: Leaves, type: GGMLType, ne: Shape, layout: str, swap: bool, tail: str
    ) -> Tensor:
        """Build the product of a gate and a value; the value or the gate may be used again."""
        a, b = _operands(new, type, ne, layout)
        gate = function(a)
        y = ops.mul(b, gate) if swap or layout == "gate" else ops.mul(gate, b)
        return ops.add(y, {"other": b, "again": gate}[tail]) if tail else y


for _name, _function in {"GELU": ops.gelu, "SILU": ops.silu, "SIGMOID": ops.sigmoid,
                         "SOFTPLUS": ops.softplus}.items():
    _declare_unary_mul(_name, _function)


@case("ADD_ADD", fused=True, max_nmse=_fused_bound, type=[F32, F16], type_b=[F32, F16], ne=ROWS,
      broadcast=[False, True], v=[False, True])
def add_add(
    new: Leaves, type: GGMLType, type_b: GGMLType, ne: Shape, broadcast: bool, v: bool
) -> Tensor:
    a = (new.part if v else new)(ne, type)
    return ops.add(ops.add(a, new(ne, type_b)), new(ne[:1] if broadcast else ne, type_b))


TILES: list[Shape] = [(1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 1, 1), (1, 1, 2, 2), (2, 2, 2, 2)]


@case("ADD_CHAIN", fused=True, max_nmse=_fused_bound, type=[F32, F16, BF16], ne=[(10, 5, 4, 3)],
      nr=TILES, n=[2, 3, 8, 16], perm=[(0, 1, 2, 3)])
@case("ADD_CHAIN", fused=True, max_nmse=_fused_bound, type=[F32], ne=[(16, 5, 4, 3)], nr=TILES[:1],
      n=[2, 3], perm=[(1, 2, 0, 3)])
def add_chain(new: Leaves, type: GGMLType, ne: Shape, nr: Shape, n: int, perm: Shape) -> Tensor:
    total = new(tuple(m * r for m, r in zip(ne, nr, strict=True)), type)
    for _ in range(n):
        total = ops.add(total, new.permuted_view(ne, perm, type))
    return total


def _declare_norm(name: str, norm: Callable[[Tensor, float], Tensor]) -> None:
    @case(f"{name}_MUL_ADD", fused=True, ne=ROWS, eps=EPS, broadcast=[False, True])
    @case(f"{name}_MUL_ADD", fused=True, ne=[(1, 1, 1, 1), (511, 1, 1, 1), (8192, 1, 1, 1),
          (16896, 1, 1, 1)], eps=[1e-6], broadcast=[False], multi_add=[False, True])
    @case(f"{name}_MUL_ADD", fused=True, ne=[(1536, 1, 1, 1), (256, 4, 3, 2)], eps=[1e-6],
          broadcast=[False, True], tail=["mul", "again"])
    def mul_add(
        new: Leaves, ne: Shape, eps: float, broadcast: bool, multi_add: bool = False,
        tail: str = "",
    ) -> Tensor:
        """broadcast: one weight and bias for all rows. tail: a factor, or the norm's source."""
        a, small = new(ne), ne[:1] if broadcast else ne
        x = ops.add(ops.add(a, new(ne)), new(ne)) if multi_add else a
        y = ops.add(ops.mul(norm(x, eps), new(small)), new(small))
        return {"mul": lambda: ops.mul(y, new(ne[:1])), "again": lambda: ops.add(y, a)}.get(
            tail, lambda: y
        )()

    @case(f"{name}_SCALE", fused=True, ne=ROWS, eps=EPS, scale=[1.5])
    def norm_scale(new: Leaves, ne: Shape, eps: float, scale: float) -> Tensor:
        return ops.scale(norm(new(ne), eps), scale)


_declare_norm("RMS_NORM", ops.rms_norm)
_declare_norm("NORM", ops.norm)


@case("GROUP_NORM_MUL_ADD", fused=True, ne=[(9, 9, 64, 1), (64, 17, 32, 1)], n_groups=[4])
def group_norm_mul_add(new: Leaves, ne: Shape, n_groups: int) -> Tensor:
    y = ops.group_norm(new(ne), n_groups, 1e-5)
    return ops.add(ops.mul(y, new(ne)), new(ne))


@case("L2_NORM_BATCH", fused=True, ne=ROWS, n=[2, 4], eps=EPS, v=[False, True])
def l2_norm_batch(new: Leaves, ne: Shape, n: int, eps: float, v: bool) -> Tensor:
    """Build the sum of norms of several tensors, or of parts of one tensor."""
    normed = [ops.l2_norm(new.second_half(ne, 1) if v else new(ne), eps) for _ in range(n)]
    total = normed[0]
    for y in normed[1:]:
        total = ops.add(total, y)
    return total
