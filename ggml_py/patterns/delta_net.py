"""Pattern of GATED_DELTA_NET that stores its states in a cache."""

from __future__ import annotations

from ggml_py.fusion.pattern import Match, Pattern
from ggml_py.patterns.states import States, go_to_cache


def states(m: Match) -> States:
    v, n_snapshots = m["v"], int(m["net"].param("n_snapshots"))
    size, n_head, n_tokens, n_seqs = v.ne
    return States(v.n_elements, size * size * n_head, n_seqs, max(1, min(n_tokens, n_snapshots)))


# The pattern does not check the source of the states. It is the same cache: each state is written
# to its row or another row, and the step reads its sources before it writes.
STATE_IN_CACHE = Pattern(
    """
    state = GET_ROWS(_, ids)
    net! = GATED_DELTA_NET(q, k, v, g, beta, ~state)
    kept = CPY(~net, _)
    """,
    go_to_cache(states),
)

STATES_TO_CACHE = Pattern(
    """
    net! = GATED_DELTA_NET(q, k, v, g, beta, state)
    kept = CPY(~net, _)
    """,
    go_to_cache(states),
)
