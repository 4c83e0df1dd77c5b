"""Recurrences that leave their states where CPY would put them: the kernel of the single node takes
the rows of the cache as one more operand (kernels/_states.py)."""

from __future__ import annotations

from ggml_cpu.fusion import fuse
from ggml_cpu.kernels.ssm.ssm_scan import keep_sources
from ggml_cpu.step import Step
from ggml_cpu.table import table
from ggml_py.fusion import f32_rows
from ggml_py.pattern import Match
from ggml_py.patterns import delta_net, linear_attention, ssm


def as_it_is(m: Match) -> str:
    """The kernel of the single node takes it without copies of its sources."""
    return table().why_not(m["net"]) or f32_rows("kept")(m)


@fuse(linear_attention.STATES_TO_CACHE, when=as_it_is)
@fuse(delta_net.STATES_TO_CACHE, when=as_it_is)
def to_the_cache(m: Match) -> list[Step]:
    net = m["net"]
    return [Step(table().get(net), net, (net, *net.src, m["kept"]))]


@fuse(ssm.STATES_TO_CACHE, when=as_it_is)
def scan_to_the_cache(m: Match) -> list[Step]:
    """The scan reads the cache itself: sequences must not overwrite what others start from."""
    (scan,) = to_the_cache(m)
    alone = m["x"].ne[3] == 1
    return [scan] if alone else [Step(keep_sources, scan.node, scan.operands), scan]
