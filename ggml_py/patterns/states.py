"""Patterns of recurrences whose states are cached: `kept` copies the states after `net`'s
outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ggml_py.fusion.pattern import Match
from ggml_py.tensor import shape4
from ggml_py.types import F32, I32


class States(NamedTuple):
    """Elements of outputs; then the states: elements of one sequence's, sequences, and how many of
    each sequence are written, newest first."""

    n_outputs: int
    size: int
    n_seqs: int
    n_written: int


def go_to_cache(states_of: Callable[[Match], States]) -> Callable[[Match], str]:
    """Return a condition: CPY takes all states, and others read outputs only."""

    def check(m: Match) -> str:
        states, net, kept = states_of(m), m["net"], m["kept"]
        shape, source = states[1:], kept.src[0]
        n, outputs = shape[0] * shape[1] * shape[2], states.n_outputs * net.type.type_size
        if source is None or (source.view_offs, source.n_elements) != (outputs, n):
            return f"needs a copy of {n} states after the outputs; got {source}"
        if not source.is_contiguous():
            return f"needs a copy of states in their own layout; got {source}"
        if kept.ne != shape4(shape) and not kept.is_contiguous():
            return f"needs rows {shape} for the states; got {kept}"
        return _others_read_outputs(m, outputs)

    return check


def rows_of_cache(m: Match, n_seqs: int) -> str:
    """Return the reason why a `state`, GET_ROWS of rows `ids` of a cache, cannot be used in place.
    It must be one dense f32 row per sequence, and `kept` must write rows of the cache."""
    cache, ids, kept = m["state"].source(0), m["ids"], m["kept"]
    if cache.type is not F32 or not cache.is_contiguous() or cache.ne[2] * cache.ne[3] > 1:
        return f"needs dense rows of f32; got {cache}"
    if ids.type is not I32 or not ids.is_contiguous() or ids.n_elements != n_seqs:
        return f"needs {n_seqs} i32 indices; got {ids}"
    steps = (kept.view_offs - cache.view_offs, *kept.nb[1:])
    if kept.root is cache.root and any(n % cache.nb[1] for n in steps):
        return f"needs states that are written to rows of the cache; got {kept}"
    return ""


def _others_read_outputs(m: Match, outputs: int) -> str:
    net, kept = m["net"], m["kept"]
    if m.uses.is_output(net):
        return f"needs states that only CPY reads; {net} is an output"
    for r in m.uses.readers(net):
        for s in r.src:
            after = s is not None and s.root is net and s.view_offs + s.nbytes > outputs
            if after and r is not kept:
                return f"needs states that only CPY reads; got {r.op} {r}"
    return ""
