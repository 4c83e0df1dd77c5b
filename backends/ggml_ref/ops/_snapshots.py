"""States of a recurrence behind its outputs."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from ggml_ref.values import Values, elements


def write_states(node: Tensor, outputs: Values, states: list[Values], n_snapshots: int) -> None:
    """Write the outputs, then snapshots, newest first; positions without one keep their values."""
    flat = elements(node).reshape(-1)
    flat[: outputs.size] = outputs.reshape(-1)
    for slot, state in enumerate(states[::-1][:n_snapshots]):
        start = outputs.size + slot * state.size
        flat[start : start + state.size] = state.reshape(-1)
