"""Recurrent ops fused with the CPY of their states to the cache.

The kernel of the unfused node takes the cache rows as an additional operand (kernels/_states.py).
"""

from __future__ import annotations

from ggml_cpu.fusion import fuse
from ggml_cpu.kernels.delta_net._gated import keep_sources as keep_delta_sources
from ggml_cpu.kernels.ssm.ssm_scan import keep_sources
from ggml_cpu.step import Step
from ggml_cpu.table import table
from ggml_py.fusion import f32_rows
from ggml_py.fusion.pattern import Match
from ggml_py.patterns import delta_net, linear_attention, ssm
from ggml_py.patterns.states import rows_of_cache


def as_it_is(m: Match) -> str:
    """Return why the kernel of the unfused node cannot run without copies, or ""."""
    return table().why_not(m["net"]) or f32_rows("kept")(m)


def rows_as_they_are(m: Match) -> str:
    """Return why cache rows are not dense f32 with all states of a sequence, or ""."""
    cache, state, n_seqs = m["state"].source(0), m["net"].source(5), m["v"].ne[3]
    if state.n_elements != n_seqs * cache.ne[0]:
        return f"needs rows of {state.n_elements // n_seqs} elements; got {cache}"
    return rows_of_cache(m, n_seqs) or as_it_is(m)


@fuse(delta_net.STATE_IN_CACHE, when=rows_as_they_are)
def in_the_cache(m: Match) -> list[Step]:
    net = m["net"]
    cache, sources = m["state"].source(0), net.src[:5]
    operands = (net, *sources, cache, m["kept"], m["ids"])
    step = Step(table().get(net), net, operands, writes=(7,))
    alone = m["v"].ne[3] == 1
    return [step] if alone else [Step(keep_delta_sources, net, operands), step]


@fuse(linear_attention.WKV6_TO_CACHE, when=as_it_is)
@fuse(linear_attention.WKV7_TO_CACHE, when=as_it_is)
@fuse(linear_attention.GATED_TO_CACHE, when=as_it_is)
@fuse(delta_net.STATES_TO_CACHE, when=as_it_is)
def to_the_cache(m: Match) -> list[Step]:
    net = m["net"]
    return [Step(table().get(net), net, (net, *net.src, m["kept"]), writes=(1 + len(net.src),))]


@fuse(ssm.STATES_TO_CACHE, when=as_it_is)
def scan_to_the_cache(m: Match) -> list[Step]:
    """Return the steps of a scan that reads and writes the cache.

    With several sequences, `keep_sources` first copies states that would be overwritten too early.
    """
    (scan,) = to_the_cache(m)
    alone = m["x"].ne[3] == 1
    return [scan] if alone else [Step(keep_sources, scan.node, scan.operands), scan]
