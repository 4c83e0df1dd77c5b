"""GATED_DELTA_NET that leaves the new states where CPY would put them."""

from __future__ import annotations

from ggml_cpu.fusion import fuse
from ggml_cpu.step import Step
from ggml_cpu.table import table
from ggml_py.fusion import f32_rows
from ggml_py.pattern import Match
from ggml_py.patterns.delta_net import STATES_TO_CACHE


def as_it_is(m: Match) -> str:
    """The kernel of the single node takes it without copies of its sources."""
    return table().why_not(m["net"]) or f32_rows("kept")(m)


@fuse(STATES_TO_CACHE, when=as_it_is)
def states_to_the_cache(m: Match) -> list[Step]:
    """The kernel takes the place of the newest states as a further operand."""
    net = m["net"]
    return [Step(table().get(net), net, (net, *net.src, m["kept"]))]
