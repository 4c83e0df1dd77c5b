"""States of a recurrence behind its outputs."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from ggml_ref.values import Values, elements


def write_states(node: Tensor, n_outputs: int, states: list[Values]) -> None:
    """Snapshots after the outputs, newest first; places without a state are left as they were."""
    flat = elements(node).reshape(-1)
    for slot, state in enumerate(states[::-1][: node.param("n_snapshots")]):
        start = n_outputs + slot * state.size
        flat[start : start + state.size] = state.reshape(-1)
