"""The real ggml's CPU backend as a device of ours: it computes our nodes, in our memory."""

from __future__ import annotations

from collections.abc import Sequence

from ggml_py.backend import Buffer, Bytes, CompileOptions, HostBuffer, aligned_bytes
from ggml_py.tensor import Tensor
from llama_py_tools.test_backend_ops.judges.libggml import Ggml
from llama_py_tools.test_backend_ops.judges.mirror import Mirror, why_no_mirror


class GgmlProgram:
    """Nodes, each computed as a graph of its own: ggml joins none, so every value is there."""

    def __init__(self, ggml: Ggml, nodes: list[Tensor]) -> None:
        self.ggml = ggml
        self.nodes = nodes

    def run(self) -> None:
        """UnsupportedOp with ggml's message where it aborts."""
        for node in self.nodes:
            mirror = Mirror(self.ggml, node)
            self.ggml.compute(mirror.address)


class GgmlDevice:
    """libggml of the installed llama-cpp-python; BackendError if there is none."""

    name = "ggml"
    kind = "cpu"
    description = "the CPU backend of llama-cpp-python's libggml"
    alignment = 64

    def __init__(self) -> None:
        self.ggml = Ggml.load()

    def memory(self) -> tuple[int, int]:
        return (0, 0)

    def alloc(self, size: int) -> Buffer:
        return HostBuffer(aligned_bytes(size, self.alignment))

    def wrap(self, data: Bytes) -> Buffer | None:
        return HostBuffer(data)

    def why_not(self, node: Tensor) -> str:
        if reason := why_no_mirror(self.ggml, node):
            return reason
        mirror = Mirror(self.ggml, node)
        supported = self.ggml.supports(mirror.address)
        return "" if supported else "its CPU backend does not take this node"

    def can_read(self, buffer: Buffer) -> bool:
        return isinstance(buffer, HostBuffer)

    def prepare_weight(self, weight: Tensor, uses: Sequence[str]) -> None:
        """Weights stay as they are."""

    def compile(self, nodes: list[Tensor], options: CompileOptions) -> GgmlProgram:
        return GgmlProgram(self.ggml, [t for t in nodes if not t.is_empty()])

    def set_threads(self, n: int) -> None:
        """One: ggml may abort, which only the calling thread survives."""
