"""Forecast of the experts that a layer will use: its router, applied to the layer before."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_cpu.dense import build_steps
from ggml_cpu.executor import Executor, in_turn
from ggml_cpu.experts.policies import Numbers
from ggml_cpu.faults import FAULT, new_record
from ggml_cpu.layout import StepLayout
from ggml_cpu.objcache import load_kernels
from ggml_cpu.params import block_address
from ggml_py.backend import HostBuffer, aligned_bytes
from ggml_py.ops import mul_mat
from ggml_py.tensor import Tensor
from ggml_py.types import F32

MOST = 8  # maximum number of tokens; a prompt uses nearly all experts

Values = npt.NDArray[np.float32]


class Forecast:
    """The router of a layer, for `n_tokens` tokens on the threads of an executor."""

    def __init__(self, router: Tensor, n_tokens: int, executor: Executor) -> None:
        x = Tensor(F32, (router.ne[0], n_tokens))
        y = mul_mat(router, x)
        for t in (x, y):
            t.buffer = HostBuffer(aligned_bytes(t.nbytes))
        self._x, self._y = (_values(t) for t in (x, y))
        steps = build_steps(y)
        self._executor = executor
        self._layout = layout = StepLayout(steps, executor.n_threads, often=False)
        self._faults = new_record()
        layout.blocks[:, FAULT] = self._faults.ctypes.data
        kernels = {e.kernel.name: e.kernel for e in layout.entries}
        addresses = load_kernels([*kernels.values()])
        self._program = in_turn(
            (addresses[e.kernel.name], block_address(layout.blocks, layout.rows[e.step][0]))
            for e in layout.entries
        )

    def __call__(self, states: Values, n_used: int) -> Numbers:
        """Return the experts that n_used choices per token would name, for states [n_tokens, n]."""
        self._x[...] = states
        self._executor.run(int(self._program.ctypes.data), len(self._program))
        n = self._y.shape[1] - n_used
        return np.unique(np.argpartition(self._y, n, axis=1)[:, n:])


def _values(t: Tensor) -> Values:
    assert isinstance(t.buffer, HostBuffer)
    return t.buffer.data.view(np.float32).reshape(t.ne[1], t.ne[0])
