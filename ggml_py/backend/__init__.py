"""Backends: devices, tables of kernels, and the registry of installed backends."""

from ggml_py.backend.abilities import *  # noqa: F403
from ggml_py.backend.compilation import *  # noqa: F403
from ggml_py.backend.concurrency import *  # noqa: F403
from ggml_py.backend.device import *  # noqa: F403
from ggml_py.backend.host_memory import HostBuffer as HostBuffer
from ggml_py.backend.host_memory import aligned_bytes as aligned_bytes
from ggml_py.backend.processes import *  # noqa: F403
from ggml_py.backend.values import *  # noqa: F403
