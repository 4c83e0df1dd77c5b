"""Dense copies of sources that have gaps between a row's elements, for kernels without strides.

Each copy is a separate CONT step, so kernels need one variant and dense sources need no copy.
"""

from __future__ import annotations

from ggml_cpu.kernel import Kernel
from ggml_cpu.step import Step
from ggml_cpu.table import table
from ggml_py.backend import HostBuffer, aligned_bytes
from ggml_py.ops.registry import OPS
from ggml_py.tensor import Tensor


def dense_copy(node: Tensor, i: int) -> Tensor | None:
    """Return CONT of source i if its rows have gaps, it is read-only and can be copied, or None."""
    source = node.src[i]
    if source is None or source.has_contiguous_rows() or i in OPS[node.op].writes:
        return None
    if node.view_src is not None and node.view_src is (source.view_src or source):
        return None
    copy = Tensor(source.type, source.ne, "CONT", (source,))
    return None if table().find(copy) is None else copy


def with_copies(node: Tensor) -> tuple[Kernel, tuple[Tensor | None, ...]] | None:
    """Return a kernel for the node with dense copies of its sources, and the sources, or None."""
    src = tuple(dense_copy(node, i) or s for i, s in enumerate(node.src))
    like = Tensor(node.type, node.ne, node.op, src, node.params, nb=node.nb)
    kernel = table().find(like)
    return None if kernel is None else (kernel, src)


def why_not(node: Tensor) -> str:
    """Return "" if the node can run, with dense copies if needed; else the reasons."""
    if table().find(node) is not None or with_copies(node) is not None:
        return ""
    return table().why_not(node)


def build_steps(node: Tensor) -> list[Step]:
    """Return the steps of a node: dense copies if needed, then its kernel. Raises UnsupportedOp."""
    alone = table().find(node)
    found = with_copies(node) if alone is None else None
    if found is None:
        return [
            Step(alone or table().get(node), node, (node, *node.src), writes=written_operands(node))
        ]
    kernel, src = found
    copies = [s for s, old in zip(src, node.src, strict=True) if s is not None and s is not old]
    for copy in copies:
        copy.buffer = HostBuffer(aligned_bytes(copy.nbytes))
    steps = [Step(table().get(c), c, (c, *c.src)) for c in copies]
    return [*steps, Step(kernel, node, (node, *src), writes=written_operands(node))]


def written_operands(node: Tensor) -> tuple[int, ...]:
    """Return the indices of the operands that a node's kernel writes, except dst."""
    writes = OPS[node.op].writes
    return writes and tuple(1 + i for i in writes if i < len(node.src) and node.src[i])
