"""Test cases of ggml_py/ops/arithmetic.py."""

from __future__ import annotations

from collections.abc import Callable

from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, I32, GGMLType
from llama_py_tools.test_backend_ops.case import Leaves, case, draws, integers, uniform

Shape = tuple[int, ...]

BF16 = BY_NAME["bf16"]
FLOATS = [F32, F16, BF16]
BINARY = {"ADD": ops.add, "SUB": ops.sub, "MUL": ops.mul, "DIV": ops.div}
TILES = [(1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 1, 1), (1, 1, 2, 1), (1, 1, 1, 2), (2, 2, 2, 2)]
TILES += [(1, 1, 2, 2), (1, 2, 2, 2)]
# Planes of one element, rows and planes repeated together, long rows, many rows, many planes.
LARGE: list[tuple[Shape, Shape]] = [
    ((1, 1, 48, 40), (1, 1, 1, 1)), ((1, 1, 40, 1), (16, 16, 1, 1)), ((96, 1, 1, 1), (1, 7, 5, 1)),
    ((1280, 3, 1, 1), (1, 1, 1, 1)), ((5120, 1, 1, 1), (1, 9, 1, 1)),
    ((4099, 1, 1, 1), (1, 3, 1, 1)), ((4, 70000, 1, 1), (1, 1, 1, 1)),
    ((1, 1, 66000, 1), (4, 1, 1, 1)), ((16900, 1, 1, 1), (1, 2, 1, 1)),
]  # fmt: skip


def _type_bound(type: GGMLType, **_: object) -> float:
    return 1e-4 if type is BF16 else 1e-7


def _binary(name: str, build: Callable[..., Tensor]) -> None:
    divisor = uniform(0.5, 1.5)

    @case(name, type=[F32], ne=[(1, 1, 1, 1), (3, 1, 1, 1), (17, 5, 3, 2)], nr=TILES)
    @case(name, max_nmse=_type_bound, type=[F16, BF16], ne=[(10, 5, 4, 3)], nr=TILES)
    @case(name, type=[F32], ne=[(1, 1, 8, 1), (1, 65, 3, 2), (1, 1, 33, 5)], nr=[(257, 1, 1, 1)])
    @case(name, type=[F32, F16], ne=[(63, 3, 1, 1), (100, 1, 2, 1)], nr=[(1, 7, 1, 3)])
    @case(name, type=[F32], ne=[(0, 3, 1, 1), (5, 0, 1, 1)], nr=[(1, 1, 1, 1)])
    def build_repeated(new: Leaves, type: GGMLType, ne: Shape, nr: Shape) -> Tensor:
        shape = tuple(n * r for n, r in zip(ne, nr, strict=True))
        return build(new(shape, type), new(ne, type, divisor))

    @case(name, type=[F32, F16], ne=[(33, 5, 3, 2), (64, 4, 2, 1)], v=["a", "b", "both"])
    def build_strided(new: Leaves, type: GGMLType, ne: Shape, v: str) -> Tensor:
        a = new(ne, type) if v == "b" else new.part(ne, type)
        b = new(ne, type, divisor) if v == "a" else new.part(ne, type, divisor)
        return build(a, b)

    for shape, tiles in LARGE:
        case(name, max_nmse=_type_bound, type=FLOATS, ne=[shape], nr=[tiles])(build_repeated)

    @case(name, type_a=[F32], type_b=[F16, BF16], ne=[(33, 5, 3, 2)])
    @case(name, type_a=[F16], type_b=[F32], ne=[(33, 5, 3, 2)])
    @case(name, max_nmse=1e-4, type_a=[BF16], type_b=[F32], ne=[(33, 5, 3, 2), (512, 1, 1, 1)],
          nr=[(1, 1, 1, 1), (2, 2, 2, 2), (1, 32, 1, 1)])
    def build_mixed(
        new: Leaves, type_a: GGMLType, type_b: GGMLType, ne: Shape, nr: Shape = (1, 1, 1, 1)
    ) -> Tensor:
        shape = tuple(n * r for n, r in zip(ne, nr, strict=True))
        return build(new(shape, type_a), new(ne, type_b, divisor))

    @case(name, type=[F32], ne=[(33, 5, 3, 2)], perm=[(0, 2, 1, 3), (1, 0, 2, 3)])
    def build_permuted(new: Leaves, type: GGMLType, ne: Shape, perm: Shape) -> Tensor:
        return build(new.permuted_view(ne, perm, type), new.permuted_view(ne, perm, type, divisor))

    @case(name, max_nmse=_type_bound, type=FLOATS,
          ne=[(10, 5, 4, 3), (10, 5, 4, 1), (1, 1, 48, 40)], nr=TILES[:4], perm_b=[(1, 2, 0, 3)])
    def one_permuted(new: Leaves, type: GGMLType, ne: Shape, nr: Shape, perm_b: Shape) -> Tensor:
        shape = tuple(n * r for n, r in zip(ne, nr, strict=True))
        return build(new(shape, type), new.permuted_view(ne, perm_b, type, divisor))

    @case(name, max_nmse=_type_bound, type=FLOATS, ne=[(10, 5, 4, 4), (10, 5, 4, 5), (1, 1, 4, 36)],
          overlap=[True])
    def overlapping(new: Leaves, type: GGMLType, ne: Shape, overlap: bool) -> Tensor:
        """Build the op on two thirds of one tensor, from its beginning and from its middle."""
        step = ne[3] // 2
        whole = new((*ne[:3], ne[3] + step), type, uniform(0.5, 1.5))
        first, second = (
            ops.view_4d(whole, *ne, *whole.nb[1:], i * step * whole.nb[3])  # type: ignore[call-arg]
            for i in range(2)
        )
        return build(first, second)

    @case(name, type=[F32], ne=[(16, 5, 4, 3)], inplace=[True], whole=[True])
    def inplace_whole(new: Leaves, type: GGMLType, ne: Shape, inplace: bool, whole: bool) -> Tensor:
        return build(new(ne, type), new(ne, type, divisor), inplace=inplace)

    @case(name, type=[F32], ne=[(33, 5, 3, 2)], inplace=[True])
    def inplace(new: Leaves, type: GGMLType, ne: Shape, inplace: bool) -> Tensor:
        return build(new(ne, type), new(ne[:1], type, divisor), inplace=inplace)

    @case(name, perf=True, type=[F32], ne=[(4096, 512, 1, 1)], nr=[(1, 1, 1, 1)])
    @case(name, perf=True, type=[F32], ne=[(4096, 1, 1, 1)], nr=[(1, 1, 1, 1), (1, 512, 1, 1)])
    def build_timed(new: Leaves, type: GGMLType, ne: Shape, nr: Shape) -> Tensor:
        return build_repeated(new, type, ne, nr)


for _name, _build in BINARY.items():
    _binary(_name, _build)


@case("ADD_ID", n_embd=[1, 17, 129], n_experts=[8], n_experts_used=[1, 4], n_token=[1, 3, 33])
@case("ADD_ID", n_embd=[32], n_experts=[4], n_experts_used=[2, 4], n_token=[1, 32, 129], v=[True])
@case("ADD_ID", perf=True, n_embd=[2880], n_experts=[32], n_experts_used=[4], n_token=[512])
def add_id(
    new: Leaves, n_embd: int, n_experts: int, n_experts_used: int, n_token: int, v: bool = False
) -> Tensor:
    """Build ADD_ID; v: the ids are the beginning of a longer list."""
    length = n_experts_used + 3 if v else n_experts_used
    ids = new((length, n_token), I32, integers(0, n_experts))
    if v:
        ids = ops.view_2d(ids, n_experts_used, n_token, ids.nb[1], 0)
    return ops.add_id(new((n_embd, n_experts_used, n_token)), new((n_embd, n_experts)), ids)


@case("SCALE", type=[F32], ne=[(10, 10, 10, 10)], scale=[2.0], bias=[0.0, 1.0],
      inplace=[False, True])
@case("SCALE", type=[F32], ne=[(1, 1, 1, 1), (257, 3, 1, 1)], scale=[-0.5], bias=[0.25])
@case("SCALE", max_nmse=_type_bound, type=[F16, BF16], ne=[(100, 10, 3, 2), (33, 1, 1, 1)],
      scale=[0.5], bias=[0.0, 1.0], inplace=[False, True])
@case("SCALE", type=[F32], ne=[(0, 3, 1, 1), (5, 0, 1, 1)], scale=[2.0], bias=[1.0])
@case("SCALE", perf=True, type=[F32], ne=[(4096, 512, 1, 1)], scale=[2.0], bias=[0.0])
def scale(
    new: Leaves, type: GGMLType, ne: Shape, scale: float, bias: float, inplace: bool = False
) -> Tensor:
    return ops.scale(new(ne, type), scale, bias, inplace)


@case("CLAMP", type=[F32, F16], ne=[(1, 1, 1, 1), (7, 1, 5, 3), (257, 3, 1, 1)], min=[-0.5],
      max=[0.5])
@case("CLAMP", type=[F32, F16], ne=[(10, 5, 4, 3), (1100, 65, 1, 1)], min=[-0.5], max=[0.5])
@case("CLAMP", type=[F32], ne=[(33, 5, 1, 1)], min=[6.103515625e-5], max=[float("inf")])
@case("CLAMP", perf=True, type=[F32], ne=[(4096, 512, 1, 1)], min=[-0.5], max=[0.5])
def clamp(new: Leaves, type: GGMLType, ne: Shape, min: float, max: float) -> Tensor:
    return ops.clamp(new(ne, type), min, max)


def _add1_bound(type_a: GGMLType, **_: object) -> float:
    return {"f32": 1e-7, "f16": 1e-6}.get(type_a.name, 1e-4)


@case("ADD1", max_nmse=_add1_bound, type_a=[F32], type_b=[F32], ne=[(10, 5, 4, 3), (257, 1, 1, 1)],
      v=[False, True])
@case("ADD1", max_nmse=_add1_bound, type_a=[F16], type_b=[F16, F32], ne=[(33, 5, 4, 3)])
@case("ADD1", max_nmse=_add1_bound, type_a=[BF16], type_b=[BF16, F32], ne=[(33, 5, 4, 3)])
@case("ADD1", max_nmse=_add1_bound, type_a=[F32], type_b=[F32], ne=[(33, 5, 1, 1), (5, 0, 1, 1)],
      inplace=[True])
@case("ADD1", perf=True, type_a=[F32], type_b=[F32], ne=[(4096, 512, 1, 1)])
def add1(
    new: Leaves, type_a: GGMLType, type_b: GGMLType, ne: Shape, v: bool = False,
    inplace: bool = False,
) -> Tensor:
    return ops.add1((new.half_rows if v else new)(ne, type_a), new((1,), type_b), inplace)


draws("ADD_ID", 2, lambda t: integers(0, t.src[1].ne[1]))
