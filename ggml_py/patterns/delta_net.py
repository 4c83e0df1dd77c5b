"""GATED_DELTA_NET whose states go to a cache."""

from __future__ import annotations

from ggml_py.pattern import Match, Pattern
from ggml_py.patterns.states import States, go_to_cache


def states(m: Match) -> States:
    v, n_snapshots = m["v"], int(m["net"].param("n_snapshots"))
    size, n_head, n_tokens, n_seqs = v.ne
    return States(v.n_elements, size * size * n_head, n_seqs, max(1, min(n_tokens, n_snapshots)))


def one_sequence(m: Match) -> str:
    """Its state is read where it lies: others might overwrite theirs before that."""
    n_seqs = m["v"].ne[3]
    return "" if n_seqs == 1 else f"needs one sequence; got {n_seqs}"


# What the state is read from is not looked at: it is where a state goes as well, or another row.
STATE_IN_CACHE = Pattern(
    """
    state = GET_ROWS(_, ids)
    net! = GATED_DELTA_NET(q, k, v, g, beta, ~state)
    kept = CPY(~net, _)
    """,
    one_sequence, go_to_cache(states),
)  # fmt: skip

STATES_TO_CACHE = Pattern(
    """
    net! = GATED_DELTA_NET(q, k, v, g, beta, state)
    kept = CPY(~net, _)
    """,
    go_to_cache(states),
)
