"""Protocols of optional abilities of devices, in addition to running nodes one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ggml_py._moved import former_names
from ggml_py.backend.device import Device, Work
from ggml_py.fusion import Fusions
from ggml_py.fusion.uses import Uses
from ggml_py.tensor import Bytes, Tensor
from ggml_py.types import GGMLType


@runtime_checkable
class Fuses(Protocol):
    """A device that can run several nodes as one step."""

    @property
    def fusions(self) -> Fusions[Any]:
        """The patterns of such nodes."""


def plan_steps(device: Device, nodes: list[Tensor], uses: Uses) -> list[Work]:
    """Return the device's steps for consecutive nodes, fused if the device can.

    uses  of values in the whole graph
    """
    return device.fusions.steps(nodes, uses) if isinstance(device, Fuses) else [*nodes]


@runtime_checkable
class SupportsRepacking(Protocol):
    """A device that repacks weights, and can return their layout in advance."""

    def repacked_layout(self, weight: Tensor, uses: Sequence[str]) -> tuple[str, int] | None:
        """Return the layout that `prepare_weight` would give a weight, and its bytes; None: it is
        unchanged."""


SCATTERED = "*"  # suffix of a layout: the data are the addresses of a weight's matrices, i64 [ne2]


class FileWeight(NamedTuple):
    """A weight and its bytes in a file, from `offset` on."""

    tensor: Tensor
    path: Path
    offset: int


class ExpertWeights(NamedTuple):
    """The weights of the experts of a layer, and the matrix of the router that chooses them."""

    weights: Sequence[FileWeight]
    router: Tensor | None = None


@dataclass(slots=True)
class ExpertStats:
    """Counters of a cache of experts.

    memory   bytes of the cache;  n_bytes  bytes read from the file;  n_tokens  tokens of all graphs
    n_used   experts that layers used;  n_missed  used experts that no load had begun for
    n_ahead  experts loaded before their layer ran;  wait_seconds  time that layers waited
    n_forecast  used experts in layers with a forecast;  n_right  used experts in the forecast
    """

    memory: int = 0
    n_bytes: int = 0
    n_tokens: int = 0
    n_used: int = 0
    n_missed: int = 0
    n_ahead: int = 0
    wait_seconds: float = 0.0
    n_forecast: int = 0
    n_right: int = 0

    def __str__(self) -> str:
        return (
            f"experts: {self.memory / 2**20:.0f} MiB cached, {self.hit_rate:.1%} hits,"
            f" {self.bytes_per_token / 2**20:.2f} MiB read per token,"
            f" {self.wait_seconds:.2f} s waited"
        )

    def __add__(self, other: ExpertStats) -> ExpertStats:
        """Add the counters of two caches."""
        return self._combine(other, 1)

    def __sub__(self, other: ExpertStats) -> ExpertStats:
        """Return the counters since an earlier time."""
        return self._combine(other, -1)

    def _combine(self, other: ExpertStats, sign: int) -> ExpertStats:
        names = (f.name for f in fields(self))
        return ExpertStats(*(getattr(self, n) + sign * getattr(other, n) for n in names))

    @property
    def hit_rate(self) -> float:
        """Share of the used experts that were cached, or being loaded."""
        return 1 - self.n_missed / max(1, self.n_used)

    @property
    def bytes_per_token(self) -> float:
        """Bytes read from the file per token of a graph."""
        return self.n_bytes / max(1, self.n_tokens)


@runtime_checkable
class CachesExperts(Protocol):
    """A device that can read the experts of a mixture from a file when a graph needs them."""

    def can_cache(self, layers: Sequence[ExpertWeights], budget: int) -> int:
        """Return the bytes of a cache of experts, at most `budget` bytes;
        0 if it is too small."""

    def cache_experts(self, layers: Sequence[ExpertWeights], budget: int) -> ExpertStats:
        """Read these weights from their files from now on; return the counters."""

    def measure_reads(self, weights: Sequence[FileWeight]) -> float:
        """Return the bytes/s of reads of experts, measured on the files of these weights."""


@runtime_checkable
class LimitsBuffers(Protocol):
    """A device that limits the size of one buffer to a part of its memory."""

    def max_buffer_size(self, total: int | None = None) -> int | None:
        """Return the maximum bytes of one buffer, for `total` bytes of memory if given; None:
        unknown."""


MaskLogits = Callable[[npt.NDArray[np.float32], bytes], npt.NDArray[np.float32]]


@runtime_checkable
class MasksLogits(Protocol):
    """Device with a kernel that masks logits by a grammar."""

    def logits_mask(self) -> MaskLogits:
        """Return a function of logits [n] and bits, one per token, lowest first: it copies logits
        with -inf for tokens without a bit."""


QuantizeRows = Callable[[npt.NDArray[np.float32], npt.NDArray[np.float32] | None], Bytes]


@runtime_checkable
class QuantizesRows(Protocol):
    """A device that quantizes weights in the memory of the host."""

    def row_quantizer(self, type: GGMLType, weighted: bool) -> QuantizeRows:
        """Return a thread-safe function from values (n_rows, n_per_row), and importance
        (n_per_row) if `weighted`, to blocks (n_rows, bytes).

        Raises BackendError for a type that cannot be quantized so.
        """


ReadBlocks = Callable[[Bytes], npt.NDArray[np.float32]]


@runtime_checkable
class ReadsBlocks(Protocol):
    """A device that knows the values of blocks in the memory of the host."""

    def block_reader(self, type: GGMLType) -> ReadBlocks | None:
        """Return a function from blocks (n, type_size) to values (n, block_size); None for a type
        without values."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One run of one kernel for a node, from start to end in nanoseconds of the device's clock.

    threads  begin and end in each thread, if known
    """

    node: Tensor
    kernel: str
    start: int
    end: int
    threads: tuple[tuple[int, int], ...] = ()


@runtime_checkable
class Profiles(Protocol):
    """A device that can measure the run times of its kernels."""

    def profiling(self) -> AbstractContextManager[list[KernelTime]]:
        """Yield a list that receives the kernels run within the context."""


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, steps_of="plan_steps", LaysOut="SupportsRepacking")
