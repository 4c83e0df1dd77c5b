"""Fusion patterns of SSM_CONV with states, bias and SILU, and of SSM_SCAN with stored states."""

from __future__ import annotations

from ggml_py.fusion.pattern import Match, Pattern
from ggml_py.patterns.states import States, go_to_cache
from ggml_py.tensor import Tensor


def check_whole_view(t: Tensor | None) -> str:
    """Check that t views all elements of a tensor in order."""
    if t is not None and t.is_contiguous() and t.n_elements == t.root.n_elements:
        return ""
    return f"needs all values in their order; got {t}"


def keeps_the_last_inputs(m: Match) -> str:
    """Check that the state precedes the new values, and that the graph stores the last inputs.

    Each stored window ends at some position, and has one row per sequence.
    """
    joined = m["joined"]
    state = joined.source(0)
    if joined.param("dim") != 0 or joined.ne[3] != 1:
        return f"needs states and inputs joined along dimension 0; got {joined}"
    row = (state.ne[0] * state.ne[1], state.ne[2], 1, 1)
    dense = (joined.type.type_size, joined.type.type_size * state.ne[0])
    for kept in m.all_nodes("kept"):
        window = kept.src[0]
        if window is None or (window.ne, window.nb[:3]) != (state.ne, joined.nb[:3]):
            return f"needs to store the same number of inputs as it reads; got {window}"
        rows = kept.ne == row or (kept.ne == state.ne and kept.nb[:2] == dense)
        if window.view_offs >= joined.nb[1] or not rows:
            return f"needs rows of {row[0]} stored inputs, one row per sequence; got {kept}"
    return check_whole_view(m["y"].src[0])


CONCAT_CONV_SILU = Pattern(
    """
    joined = CONCAT(state, x)
    kept+ = CPY(~joined, _)
    conv = SSM_CONV(joined, weight)
    y = SILU(~conv)
    """,
    keeps_the_last_inputs,
)

CONV_IN_CACHE = Pattern(
    """
    state = GET_ROWS(_, ids)
    joined = CONCAT(~state, x)
    kept! = CPY(~joined, _)
    conv = SSM_CONV(joined, weight)
    y = SILU(~conv)
    """,
    keeps_the_last_inputs,
)


def states(m: Match) -> States:
    x, n_snapshots = m["x"], int(m["net"].param("n_snapshots"))
    dim, n_head, n_tokens, n_seqs = x.ne
    size = m["b"].ne[0] * dim * n_head
    return States(x.n_elements, size, n_seqs, max(1, min(n_tokens, n_snapshots)))


# The pattern does not check the cache that supplies the states. If the step also writes this cache,
# it reads its sources first.
STATES_TO_CACHE = Pattern(
    """
    net! = SSM_SCAN(_, x, dt, a, b, c, ids)
    kept = CPY(~net, _)
    """,
    go_to_cache(states),
)
