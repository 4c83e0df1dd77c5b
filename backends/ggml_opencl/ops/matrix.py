"""OpenCL launchers of the ops in ggml_py/ops/matrix.py."""

from __future__ import annotations

from ggml_opencl.conditions import READABLE, all_conditions, all_typed, dense_rows, needs_type
from ggml_opencl.kernels import quantized_types
from ggml_opencl.table import Launch, defines, items, table
from ggml_py.tensor import Tensor

ROWS = 8  # rows per work-group in kernels/matrix/columns.cl
HIGH, TILE = 64, 32  # rows and columns per work-group in mul_mat_tile and mul_mat_id_tile
FEW = 4  # maximum columns that are computed as separate GEMVs
TRIANGULAR = defines(TRIANGULAR=1)


def weights(node: Tensor) -> str:
    return needs_type(0, *READABLE, *sorted(quantized_types()))(node)


PRODUCT = all_conditions(weights, needs_type(1, *READABLE), dense_rows(0))


@table.op("MUL_MAT", PRODUCT)
def mul_mat(node: Tensor) -> list[Launch]:
    a, b = node.sources()
    if is_of_columns(node):
        return [Launch("matrix/columns", "mul_mat_columns", (a, b, node), of_columns(node))]
    n, m, batch = node.ne[0], node.ne[1], node.ne[2] * node.ne[3]
    groups = (-(-n // HIGH), -(-m // TILE), batch)
    return [Launch("matrix/tiles", "mul_mat_tile", (a, b, node), groups)]


def is_of_columns(node: Tensor) -> bool:
    """Return True if there are few columns (per expert), each computed as a separate GEMV."""
    if node.op == "MUL_MAT_ID":
        return node.ne[1] * node.ne[2] <= FEW * node.source(0).ne[2]
    return node.ne[1] <= FEW


def of_columns(node: Tensor, rows: int = ROWS) -> tuple[int, int, int]:
    """Return the work-groups of a matmul by columns, with `rows` rows per group."""
    n, m, batch, others = node.ne
    return (-(-n // rows), m, batch * others)


def all_there(node: Tensor) -> str:
    n, of = node.source(0).ne[2], node.param("of")
    return f"needs all matrices of the weight; got {n} of {of}" if of else ""


@table.op("MUL_MAT_ID", all_conditions(PRODUCT, all_there))
def mul_mat_id(node: Tensor) -> list[Launch]:
    a, b, ids = node.sources()
    tensors, types = (a, b, node, ids), (a.type.name, b.type.name, "f32")
    if is_of_columns(node):
        family, kernel, groups = "matrix/columns", "mul_mat_id", of_columns(node)
    else:
        groups = (-(-node.ne[0] // HIGH), a.ne[2], 1)
        family, kernel = "matrix/tiles", "mul_mat_id_tile"
    return [Launch(family, kernel, tensors, groups, types=types, checked=True)]


@table.op("OUT_PROD", all_conditions(weights, all_typed((1, -1), "f32"), dense_rows(0)))
def out_prod(node: Tensor) -> list[Launch]:
    n, given = items(-(-node.ne[0] // 32) * node.n_rows), defines(OUTER=1)
    return [Launch("matrix", "out_prod", (*node.sources(), node), n, (), given)]


@table.op("SOLVE_TRI", all_typed((0, 1, -1), "f32"))
def solve_tri(node: Tensor) -> list[Launch]:
    a, b = node.sources()
    n = items(b.ne[0] * b.ne[2] * b.ne[3])
    return [Launch("matrix", "solve_tri", (a, b, node), n, (), TRIANGULAR)]


@table.op("DIAG", all_typed((0, -1), "f32"))
def diag(node: Tensor) -> list[Launch]:
    n = items(node.n_elements)
    return [Launch("matrix", "diag", (node.source(0), node), n, (), TRIANGULAR)]
