"""Cases of ggml_py/ops/copy.py."""

from __future__ import annotations

from ggml_py import ops
from ggml_py.tensor import Tensor, contiguous_strides
from ggml_py.types import BY_NAME, F16, F32, I32, I64, TYPES, GGMLType
from ggml_ref.quants import quantizer, quantizes_as_ggml
from llama_py_tools.test_backend_ops.case import Leaves, case, integers, uniform

Shape = tuple[int, ...]
BF16 = BY_NAME["bf16"]
QUANTIZED = [t for t in TYPES.values() if t.is_quantized and quantizer(t)]
STORED = [BY_NAME[n] for n in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl")]  # in caches
READABLE = [t for t in QUANTIZED if t not in STORED]
PARTNERS = [BY_NAME["q8_1"], BY_NAME["q8_K"]]  # what ggml rounds activations to, and nothing else
WRITABLE = [t for t in QUANTIZED if t not in PARTNERS and quantizes_as_ggml(t)]
I16 = BY_NAME["i16"]
WHOLE = uniform(-150, 150)
PERMUTATIONS: list[Shape] = [(0, 1, 2, 3), (1, 0, 2, 3), (0, 2, 1, 3), (3, 1, 0, 2), (0, 3, 1, 2)]


def quantization_bound(type: GGMLType, n: int) -> float:
    """The error if one of n values is rounded to the next level (test-backend-ops.cpp)."""
    if not type.is_quantized:
        return 1e-7
    step = {"q5_0": 1 / 16, "q5_1": 1 / 16, "q8_0": 1 / 64, "iq4_nl": 1 / 4}.get(type.name, 1 / 8)
    return step**2 / (0.25 * max(n, 1))


@case("CONT", max_nmse=0, type=[F32, F16, BF16, I32],
      ne=[(2, 1, 1, 1), (2, 3, 5, 7), (33, 5, 1, 1)], perm=PERMUTATIONS)  # fmt: skip
@case("CONT", max_nmse=0, type=[F32], ne=[(65, 17, 3, 2), (257, 100, 1, 1), (5, 0, 3, 1)],
      perm=PERMUTATIONS[:3])  # fmt: skip
@case("CONT", perf=True, type=[F32], ne=[(128, 512, 32, 1)], perm=[(0, 2, 1, 3), (1, 0, 2, 3)])
def cont(new: Leaves, type: GGMLType, ne: Shape, perm: Shape) -> Tensor:
    return ops.cont(_permuted(new, ne, perm, type))


@case("CONT", max_nmse=0, type=[F32, F16], ne=[(10, 10, 10, 1), (64, 3, 65, 1), (1000, 33, 5, 1)],
      perm=[(0, 2, 1, 3), (2, 1, 0, 3), (2, 0, 1, 3), (1, 2, 0, 3)])  # fmt: skip
@case("CONT", max_nmse=0, type=[F32], ne=[(2304, 16, 9, 1), (9, 2304, 16, 1)],
      perm=[(2, 1, 0, 3), (1, 2, 0, 3)])  # fmt: skip
def cont_permuted(new: Leaves, type: GGMLType, ne: Shape, perm: Shape) -> Tensor:
    return ops.cont(_permuted(new, ne, perm, type))


@case("CONT", max_nmse=0, type=[F32, F16, BF16, I32], ne=[(33, 5, 3, 2), (2, 1, 3, 5)],
      view=[True])  # fmt: skip
def cont_view(new: Leaves, type: GGMLType, ne: Shape, view: bool) -> Tensor:
    return ops.cont(new.part(ne, type, WHOLE))


@case("CONT", max_nmse=0, type=[F32, I32, F16], ne=[(1, 8, 17, 1), (10, 10, 10, 2)],
      half=[0, 1, 2])  # fmt: skip
def cont_half(new: Leaves, type: GGMLType, ne: Shape, half: int) -> Tensor:
    return ops.cont(new.half(ne, half, type, WHOLE))


@case("CONT", max_nmse=0, ne=[(6, 5, 4, 3)], perm=[(0, 2, 1, 3), (1, 0, 2, 3)],
      to=[(30, 12), (3, 120)])  # fmt: skip
def cont_shape(new: Leaves, ne: Shape, perm: Shape, to: Shape) -> Tensor:
    return ops.cont(new.permuted(ne, perm), *to)


@case("DUP", max_nmse=0, type=[F32, F16, I32], ne=[(10, 10, 20, 1), (33, 1, 1, 1)],
      perm=PERMUTATIONS[:3])  # fmt: skip
@case("DUP", max_nmse=0, type=[I16, BF16], ne=[(10, 8, 3, 1)],
      perm=[*PERMUTATIONS[:3], (1, 2, 0, 3), (2, 0, 1, 3)])  # fmt: skip
@case("DUP", perf=True, type=[F32], ne=[(4096, 512, 1, 1)], perm=PERMUTATIONS[:1])
def dup(new: Leaves, type: GGMLType, ne: Shape, perm: Shape) -> Tensor:
    return ops.dup(_permuted(new, ne, perm, type))


def _permuted(new: Leaves, ne: Shape, perm: Shape, type: GGMLType) -> Tensor:
    return new.permuted(ne, perm, type, WHOLE)


@case("CONCAT", max_nmse=0, type=[F32, F16, I32], ne_a=[(11, 12, 13, 2)], ne_b_d=[7],
      dim=[0, 1, 2, 3], v=[0, 1, 2, 3])  # fmt: skip
@case("CONCAT", max_nmse=0, type=[BF16, BY_NAME["i8"], I16, I64], ne_a=[(11, 12, 5, 2)],
      ne_b_d=[7], dim=[0, 1, 2, 3], v=[0, 3])  # fmt: skip
@case("CONCAT", max_nmse=0, type=STORED, ne_a=[(128, 3, 5, 2)], ne_b_d=[64], dim=[0],
      v=[0, 1, 2, 3])  # fmt: skip
@case("CONCAT", max_nmse=0, type=STORED, ne_a=[(96, 3, 5, 2)], ne_b_d=[7], dim=[1, 2, 3],
      v=[0, 1, 2, 3])  # fmt: skip
@case("CONCAT", max_nmse=0, type=[F32], ne_a=[(3, 257, 2, 1), (1, 1, 1, 1)], ne_b_d=[1, 33],
      dim=[0, 1], v=[0])  # fmt: skip
@case("CONCAT", max_nmse=0, type=[F32], ne_a=[(3, 0, 2, 1)], ne_b_d=[2], dim=[1], v=[0])
@case("CONCAT", perf=True, type=[F32], ne_a=[(4096, 512, 1, 1)], ne_b_d=[512], dim=[0, 1], v=[0])
def concat(new: Leaves, type: GGMLType, ne_a: Shape, ne_b_d: int, dim: int, v: int) -> Tensor:
    """v: bit 0: a is a window, bit 1: b is a window."""
    ne_b = tuple(ne_b_d if i == dim else n for i, n in enumerate(ne_a))
    init = integers(-100, 100) if type.name.startswith("i") else None
    a = (new.part if v & 1 else new)(ne_a, type, init)
    b = (new.part if v & 2 else new)(ne_b, type, init)
    return ops.concat(a, b, dim)


@case("CONCAT_INPLACE", max_nmse=0, type=[F32, F16, I32], ne_a=[(11, 12, 13, 2)], ne_b_d=[7],
      dim=[0, 1, 2, 3], v=[False, True])  # fmt: skip
@case("CONCAT_INPLACE", perf=True, type=[F32], ne_a=[(4096, 512, 1, 1)], ne_b_d=[512], dim=[1],
      v=[False])  # fmt: skip
def concat_inplace(
    new: Leaves, type: GGMLType, ne_a: Shape, ne_b_d: int, dim: int, v: bool
) -> Tensor:
    """v: the result is a window."""
    init = integers(-100, 100) if type is I32 else None
    ne_b = tuple(ne_b_d if i == dim else n for i, n in enumerate(ne_a))
    ne = tuple(n + (ne_b_d if i == dim else 0) for i, n in enumerate(ne_a))
    result = (new.part if v else new)(ne, type, init)
    return ops.concat_inplace(new(ne_a, type, init), new(ne_b, type, init), result, dim)


@case("CONCAT_INPLACE", max_nmse=0, ne=[(11, 12, 3, 2)], n=[1, 5], dim=[1, 3], there=[True])
def concat_there(new: Leaves, ne: Shape, n: int, dim: int, there: bool) -> Tensor:
    """a is the beginning of the result already."""
    result = new(ne)
    ne_a = tuple(m - n * (i == dim) if m > n else 1 for i, m in enumerate(ne))
    ne_a = tuple(a if i == dim else m for i, (a, m) in enumerate(zip(ne_a, ne, strict=True)))
    ne_b = tuple(m - a if i == dim else m for i, (a, m) in enumerate(zip(ne_a, ne, strict=True)))
    a = ops.view_4d(result, *ne_a, *result.nb[1:], 0)
    return ops.concat_inplace(a, new(ne_b), result, dim)


@case("CONCAT", max_nmse=0, ne_a=[(3, 65, 2, 1)], n=[1, 5], transposed=[True])
def concat_transposed(new: Leaves, ne_a: Shape, n: int, transposed: bool) -> Tensor:
    """The convolution state and the transposed input of a recurrent layer."""
    b = ops.transpose(new((ne_a[1], n, ne_a[2])))
    return ops.concat(new(ne_a), b, 0)


REPEATS: list[Shape] = [
    (1, 1, 1, 1),
    (2, 1, 1, 1),
    (1, 2, 1, 1),
    (1, 1, 2, 1),
    (1, 1, 1, 2),
    (3, 2, 2, 2),
]


@case("REPEAT", max_nmse=0, type=[F32], ne=[(10, 5, 4, 3), (1, 1, 33, 1)], nr=REPEATS)
@case("REPEAT", max_nmse=0, type=[F16, I32], ne=[(10, 5, 4, 3)], nr=[(1, 1, 1, 2), (3, 2, 2, 2)])
@case("REPEAT", max_nmse=0, type=[F32, F16, BF16, I32, I16], ne=[(10, 5, 4, 1), (10, 5, 4, 3)],
      nr=REPEATS[1:5])  # fmt: skip
@case("REPEAT", perf=True, type=[F32], ne=[(128, 1, 8, 512)], nr=[(1, 4, 1, 1)])
def repeat(new: Leaves, type: GGMLType, ne: Shape, nr: Shape) -> Tensor:
    init = integers(-100, 100) if type in (I32, I16) else None
    return ops.repeat_4d(new(ne, type, init), *(n * r for n, r in zip(ne, nr, strict=True)))


@case("REPEAT", max_nmse=0, ne=[(1, 5, 4, 3)], nr=[(7, 1, 1, 1), (7, 2, 1, 1)],
      perm=[(0, 2, 1, 3), (1, 0, 2, 3)])  # fmt: skip
def repeat_permuted(new: Leaves, ne: Shape, nr: Shape, perm: Shape) -> Tensor:
    return ops.repeat_4d(new.permuted(ne, perm), *(n * r for n, r in zip(ne, nr, strict=True)))


@case("PAD", max_nmse=0, ne_a=[(33, 5, 3, 2), (1, 1, 1, 1)],
      pad=[(1, 0, 0, 0), (0, 3, 0, 0), (0, 0, 2, 0), (0, 0, 0, 8), (1, 2, 3, 4)],
      v=[False])  # fmt: skip
@case("PAD", max_nmse=0, ne_a=[(33, 5, 3, 2)], pad=[(1, 2, 0, 1)], v=[True])
@case("PAD", max_nmse=0, ne_a=[(1023, 8, 1, 1), (1024, 2, 1, 1), (2049, 1, 1, 1)],
      pad=[(1, 0, 0, 0), (0, 1, 0, 0)], v=[False])  # fmt: skip
@case("PAD", max_nmse=0, ne_a=[(100, 1, 1, 1), (100, 100, 1, 1)],
      pad=[(100, 0, 0, 0), (0, 100, 0, 0), (50, 50, 0, 0)], v=[False])  # fmt: skip
@case("PAD", perf=True, ne_a=[(4096, 500, 1, 1)], pad=[(0, 12, 0, 0)], v=[False])
def pad(new: Leaves, ne_a: Shape, pad: Shape, v: bool) -> Tensor:
    return ops.pad(new.part(ne_a) if v else new(ne_a), *pad)


@case("PAD", max_nmse=0, ne_a=[(33, 5, 3, 2)],
      pads=[(1, 1, 1, 1, 1, 1, 1, 1), (3, 0, 0, 2, 1, 0, 0, 1)])  # fmt: skip
def pad_ext(new: Leaves, ne_a: Shape, pads: Shape) -> Tensor:
    return ops.pad_ext(new(ne_a), *pads)


WINDOWS: list[tuple[Shape, Shape]] = [
    ((0, 0, 0, 0), (6, 5, 4, 3)),
    ((1, 2, 0, 0), (4, 3, 4, 3)),
    ((0, 0, 1, 0), (6, 5, 2, 3)),
    ((0, 0, 0, 1), (6, 5, 4, 2)),
    ((1, 1, 1, 1), (3, 2, 2, 2)),
]

MIDDLE = ((0, 128, 0, 0), (4096, 256, 1, 1))


def _window(a: Tensor, at: Shape, inplace: bool = False) -> tuple[int, int, int, int]:
    """Strides of the result, which is dense unless it is a; and where the window begins."""
    nb = a.nb if inplace else contiguous_strides(a.type, a.ne)
    return (*nb[1:], sum(i * s for i, s in zip(at, nb, strict=True)))


@case("SET", max_nmse=0, type=[F32, I32], ne=[(6, 5, 4, 3)], window=WINDOWS, inplace=[False, True])
@case("SET", perf=True, type=[F32], ne=[(4096, 512, 1, 1)], window=[MIDDLE], inplace=[False])
def set_(
    new: Leaves, type: GGMLType, ne: Shape, window: tuple[Shape, Shape], inplace: bool
) -> Tensor:
    init = integers(-100, 100) if type is I32 else None
    a, b = new(ne, type, init), new(window[1], type, init)
    return ops.set_(a, b, *_window(a, window[0], inplace), inplace)


@case("ACC", ne=[(6, 5, 4, 3)], window=WINDOWS, inplace=[False, True])
@case("ACC", perf=True, ne=[(4096, 512, 1, 1)], window=[MIDDLE], inplace=[False])
def acc(new: Leaves, ne: Shape, window: tuple[Shape, Shape], inplace: bool) -> Tensor:
    a = new(ne)
    return ops.acc(a, new(window[1]), *_window(a, window[0], inplace), inplace)


@case("ACC", ne=[(256, 17, 1, 1), (256, 17, 2, 3)],
      strided=["b_part", "b_permuted", "b_half0", "b_half1", "b_half2"])  # fmt: skip
def acc_strided(new: Leaves, ne: Shape, strided: str) -> Tensor:
    a, small = new(ne), (128, 9, ne[2], ne[3])
    if strided.startswith("b_half"):
        b = new.half(small, int(strided[-1]))
    else:
        b = new.part(small) if strided == "b_part" else new.permuted(small, (1, 0, 2, 3))
    return ops.acc(a, b, *_window(a, (64, 8, 0, 0)))
