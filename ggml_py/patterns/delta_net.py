"""GATED_DELTA_NET whose newest states go to a cache."""

from __future__ import annotations

from ggml_py.pattern import Match, Pattern


def only_the_copy_reads_states(m: Match) -> str:
    """The states follow the outputs: CPY takes all of them, and others read outputs only."""
    net, kept, state = m["net"], m["kept"], m["state"]
    outputs = m["v"].n_elements * net.type.type_size
    source = kept.src[0]
    if net.param("n_snapshots") != 1:
        return f"needs one snapshot; got {net.param('n_snapshots')}"
    if m.uses.is_output(net):
        return f"needs states that only CPY reads; {net} is an output"
    for r in m.uses.readers(net):
        for s in r.src:
            after = s is not None and s.root is net and s.view_offs + s.nbytes > outputs
            if after and r is not kept:
                return f"needs states that only CPY reads; got {r.op} {r}"
    if source is None or source.view_offs != outputs or not source.is_contiguous():
        return f"needs a copy of all states; got {source}"
    if kept.n_elements != state.n_elements or kept.ne[1] != state.ne[3]:
        return f"needs a row of states for each sequence; got {kept}"
    return ""


STATES_TO_CACHE = Pattern(
    """
    net! = GATED_DELTA_NET(q, k, v, g, beta, state)
    kept = CPY(~net, _)
    """,
    only_the_copy_reads_states,
)
