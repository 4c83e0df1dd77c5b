"""Fused recurrences that write their states directly to the cache, the destination of CPY.

They use the unfused kernels, with the cache's rows as state output.
"""

from __future__ import annotations

from collections.abc import Callable

from ggml_opencl.ops._states import view_cache_rows
from ggml_opencl.ops.delta_net import store_gated_delta_net
from ggml_opencl.ops.linear_attention import store_linear_attention
from ggml_opencl.ops.ssm import store_ssm_scan
from ggml_opencl.table import Launch, fuse, table
from ggml_py.fusion import f32_rows
from ggml_py.fusion.pattern import Match
from ggml_py.patterns import delta_net, linear_attention, ssm
from ggml_py.patterns.states import States, rows_of_cache
from ggml_py.tensor import Tensor


def as_it_is(m: Match) -> str:
    return table.why_not(m["net"]) or f32_rows("kept")(m)


def check_one_sequence(m: Match) -> str:
    """Return "" for one sequence; with more, one would overwrite cache rows that another reads."""
    n_seqs = m["x"].ne[3]
    return as_it_is(m) if n_seqs == 1 else f"needs one sequence; got {n_seqs}"


def check_one_row(m: Match) -> str:
    """Return "" for one sequence: each work-item writes only cache bytes that it alone reads."""
    n_seqs, cache = m["v"].ne[3], m["state"].source(0)
    if n_seqs != 1 or m["net"].source(5).n_elements != cache.ne[0]:
        return f"needs one sequence and its row; got {n_seqs} of {cache}"
    return rows_of_cache(m, n_seqs) or as_it_is(m)


@fuse(delta_net.STATE_IN_CACHE, when=check_one_row)
def delta_net_in_the_cache(m: Match) -> list[Launch]:
    kept = view_cache_rows(m["kept"], *delta_net.states(m)[1:])
    return store_gated_delta_net(m["net"], kept, m["state"].source(0), m["ids"])


def _store_states(
    launch: Callable[[Tensor, Tensor], list[Launch]], m: Match, states: States
) -> list[Launch]:
    return launch(m["net"], view_cache_rows(m["kept"], *states[1:]))


@fuse(delta_net.STATES_TO_CACHE, when=as_it_is)
def delta_net_to_the_cache(m: Match) -> list[Launch]:
    return _store_states(store_gated_delta_net, m, delta_net.states(m))


@fuse(linear_attention.WKV6_TO_CACHE, when=as_it_is)
@fuse(linear_attention.WKV7_TO_CACHE, when=as_it_is)
@fuse(linear_attention.GATED_TO_CACHE, when=as_it_is)
def attention_to_the_cache(m: Match) -> list[Launch]:
    return _store_states(store_linear_attention, m, linear_attention.states(m))


@fuse(ssm.STATES_TO_CACHE, when=check_one_sequence)
def scan_to_the_cache(m: Match) -> list[Launch]:
    return _store_states(store_ssm_scan, m, ssm.states(m))
