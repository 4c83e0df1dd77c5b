"""Backends: devices, tables of kernels, and the registry of installed backends."""

from typing import TYPE_CHECKING

from ggml_py._moved import former_names
from ggml_py.backend.abilities import *  # noqa: F403
from ggml_py.backend.compilation import *  # noqa: F403
from ggml_py.backend.concurrency import *  # noqa: F403
from ggml_py.backend.device import *  # noqa: F403
from ggml_py.backend.host_memory import HostBuffer as HostBuffer
from ggml_py.backend.host_memory import aligned_bytes as aligned_bytes
from ggml_py.backend.processes import *  # noqa: F403
from ggml_py.backend.values import *  # noqa: F403

if not TYPE_CHECKING:
    __getattr__ = former_names(
        __name__,
        steps_of="plan_steps",
        ranges_of="slice_ranges",
        KeepsKernels="SupportsKernelCache",
        LaysOut="SupportsRepacking",
        Meets="HasBarrierStats",
        PassesOn="PeerCopyBuffer",
        Pauses="SteppableProgram",
        RunsElsewhere="RemoteDevice",
        TellsBatches="SupportsBatchThreads",
    )
