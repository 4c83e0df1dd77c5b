"""Checker that computes every node twice: on its device, and with the same inputs on another
one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ggml_py import ops
from ggml_py._moved import Former
from ggml_py.backend import (
    Bytes,
    CompileOptions,
    Device,
    Program,
    get_tensor,
    set_tensor,
    tensor_bytes,
)
from ggml_py.backend.kernels import describe
from ggml_py.errors import GGMLError
from ggml_py.inspection.judge import (
    CLOSE,
    ROUNDINGS,
    Bound,
    Values,
    closest,
    dither,
    error_bound,
    is_rounded,
    sensitive,
    sum_errors,
)
from ggml_py.opspec import OPS
from ggml_py.tensor import FLAG_WEIGHT, Tensor, numpy_dtype
from ggml_py.types import F32


class CheckFailed(GGMLError):
    """A node's values differ from the values of the device used for the check."""


class Checker:
    """Runs nodes on `device` too and compares: CheckFailed at the first that differs too much.

    weights    the bytes of a weight in ggml's own layout, by its name; None if not known
    n_checked  how many nodes were compared
    n_skipped  how many the device cannot run
    """

    def __init__(
        self, device: Device, weights: Callable[[str], Bytes | None] = lambda _: None
    ) -> None:
        self.device = device
        self.weights = weights
        self.n_checked = 0
        self.n_skipped = 0
        self._weights: dict[int, Tensor] = {}

    def text(self) -> str:
        """Return a summary of all comparisons."""
        skipped = (
            f", {self.n_skipped} skipped because {self.device.name} does not support them"
            if self.n_skipped
            else ""
        )
        return f"check: {self.n_checked} nodes match {self.device.name}{skipped}"

    def wrap_program(self, program: Program, node: Tensor, by: str) -> Program:
        """Return a program that runs `program`, which computes the node on device `by`, and
        compares."""
        return _CheckedProgram(self, program, node, by)

    def twin(self, node: Tensor) -> Tensor:
        """Return the same op on this device, on copies of the sources' present values."""
        sources = tuple(None if s is None else self._copy(s) for s in node.src)
        twin = Tensor(node.type, node.ne, node.op, sources, node.params, node.name, node.nb)
        for i in OPS[node.op].writes:  # the result may be one of the written sources
            s, copy = (t[i] if i < len(t) else None for t in (node.src, sources))
            if s is not None and copy is not None and s.root is node.root and s.same_layout(node):
                twin.buffer, twin.offset = copy.buffer, copy.offset
                return twin
        twin.buffer = self.device.alloc(max(node.nbytes, 1))
        twin.buffer.write(0, tensor_bytes(node))  # only a part of a view may be written
        return twin

    def compare(self, node: Tensor, twin: Tensor, by: str) -> None:
        """Raise CheckFailed if the node's values differ from the twin's."""
        self.n_checked += 1
        error = closest(self.references(node, twin), self.read_values(node), node.type)
        if error.problem:
            raise CheckFailed(
                f"{node.name}: {describe(node)}: {by} differs from {self.device.name}:"
                f" {error.problem}; worst {error.worst_element}"
            )

    def references(self, node: Tensor, twin: Tensor) -> Iterator[tuple[Values, Bound]]:
        """Yield accepted values of the node, each with its bound: results with exact sources, then
        results with rounded activations."""
        plain = self.read_values(twin)
        yield plain, error_bound(node)
        if not is_rounded(twin.op, (None if s is None else s.type for s in twin.src)):
            return
        coarse, place = OPS[twin.op].rounds
        weight, values = twin.source(coarse), self.read_values(twin.source(place))
        bound: Bound = CLOSE
        if twin.op == "FLASH_ATTN_EXT":
            bound = sensitive(plain, (self._recompute(twin, {place: x}) for x in dither(values)))
            yield plain, bound
        for i, rounded in enumerate(ROUNDINGS[weight.type.is_quantized]):
            found = self._recompute(twin, {place: rounded(values)})
            yield found, bound
            if i == 0 and weight.type.block_size == 32 and twin.op in ("MUL_MAT", "MUL_MAT_ID"):
                blocks = self.read_values(weight).reshape(*weight.ne[:0:-1], -1, 32)
                sums = {coarse: blocks.min(-1), place: sum_errors(values)}
                yield found + self._recompute(twin, sums), CLOSE

    def _recompute(self, twin: Tensor, given: Mapping[int, Values]) -> Values:
        """Return the op's result for other values of some sources."""
        sources = list(twin.src)
        for i, values in given.items():
            leaf = Tensor(F32, values.shape[::-1], name=twin.source(i).name)
            set_tensor(self._allocate(leaf), values)
            sources[i] = leaf
        again = Tensor(twin.type, twin.ne, twin.op, tuple(sources), twin.params, twin.name, twin.nb)
        self.run(self._allocate(again))
        return self.read_values(again)

    def read_values(self, t: Tensor) -> Values:
        """Return the values [ne3, ne2, ne1, ne0]: integers, or floats of a quantized type too."""
        if numpy_dtype(t) is not None:
            return get_tensor(t)
        leaf = self._allocate(Tensor(t.type, t.ne, nb=t.nb))
        assert leaf.buffer is not None
        leaf.buffer.write(0, tensor_bytes(t))
        plain = self._allocate(ops.cast(leaf, F32))
        self.run(plain)
        return get_tensor(plain)

    def _allocate(self, t: Tensor) -> Tensor:
        t.buffer = self.device.alloc(max(t.nbytes, 1))
        return t

    def run(self, node: Tensor) -> None:
        """Compute a single node on this device."""
        self.device.compile([node], CompileOptions(fuse=False)).run()

    def _copy(self, source: Tensor) -> Tensor:
        if source.flags & FLAG_WEIGHT and id(source) in self._weights:
            return self._weights[id(source)]
        copy = Tensor(source.type, source.ne, name=source.name, nb=source.nb)
        own = self.weights(source.name) if source.layout else None
        data = tensor_bytes(source) if own is None else own
        copy.layout = source.layout if own is None else ""
        copy.buffer = self.device.alloc(max(data.size, 1))
        copy.buffer.write(0, data)
        if source.flags & FLAG_WEIGHT:
            self._weights[id(source)] = copy
        return copy

    checked = Former("wrap_program")
    values_of = Former("read_values")


class _CheckedProgram:
    """A node's program, with the other device's before and after it."""

    def __init__(self, checker: Checker, program: Program, node: Tensor, by: str) -> None:
        self.checker = checker
        self.program = program
        self.node = node
        self.by = by

    def run(self) -> None:
        checker, node = self.checker, self.node
        if node.is_empty():
            self.program.run()
            return
        twin = checker.twin(node)
        reason = checker.device.why_not(twin)
        self.program.run()
        if reason:
            checker.n_skipped += 1
            return
        checker.run(twin)
        checker.compare(node, twin, self.by)
