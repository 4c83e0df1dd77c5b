"""Device of the real ggml's CPU backend, which computes our nodes in our memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ggml_py.backend import Buffer, Bytes, CompileOptions, HostBuffer, Work, aligned_bytes
from ggml_py.tensor import Tensor
from llama_py_tools.test_backend_ops.judges.libggml import Ggml
from llama_py_tools.test_backend_ops.judges.mirror import Mirror, why_no_mirror


class GgmlProgram:
    """Nodes, each computed as a separate graph: ggml fuses no nodes, so every value is stored.

    A node that runs several times in a row is repeated in its graph.
    """

    def __init__(self, ggml: Ggml, nodes: list[Tensor], n_threads: int) -> None:
        self.ggml, self.n_threads = ggml, n_threads
        self.nodes = [(node, len(list(same))) for node, same in groupby(nodes)]

    def run(self) -> None:
        """Run all nodes; UnsupportedOp with ggml's message if it aborts."""
        for node, times in self.nodes:
            mirror = Mirror(self.ggml, node)
            self.ggml.compute(mirror.address, times, self.n_threads if times > 1 else 1)


class GgmlDevice:
    """libggml of the installed llama-cpp-python; BackendError if it is missing."""

    name = "ggml"
    kind = "cpu"
    description = "the CPU backend of llama-cpp-python's libggml"
    alignment = 64

    def __init__(self) -> None:
        self.ggml = Ggml.load()
        self.n_threads = 1

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
        return "" if supported else "its CPU backend does not support this node"

    def can_read(self, buffer: Buffer) -> bool:
        return isinstance(buffer, HostBuffer)

    def prepare_weight(self, weight: Tensor, uses: Sequence[str]) -> None:
        """Leave the weight unchanged."""

    def compile(self, nodes: Sequence[Work], options: CompileOptions) -> GgmlProgram:
        return GgmlProgram(self.ggml, _computed_nodes(nodes), self.n_threads)

    def set_threads(self, n: int) -> None:
        """Set the threads of repeated, timed nodes. Others have one thread: only the calling thread
        survives if ggml aborts.
        """
        self.n_threads = n


def _computed_nodes(nodes: Sequence[Work]) -> list[Tensor]:
    return [t for t in nodes if isinstance(t, Tensor) and not t.is_empty()]
