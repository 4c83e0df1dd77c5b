"""GATED_DELTA_NET that leaves the new states where CPY would put them."""

from __future__ import annotations

from ggml_cpu.fusion import fuse
from ggml_cpu.step import Step
from ggml_cpu.table import table
from ggml_py.fusion import f32_rows
from ggml_py.match import Match
from ggml_py.patterns.delta_net import STATES_TO_CACHE


@fuse(STATES_TO_CACHE, when=f32_rows("kept"))
def states_to_the_cache(m: Match) -> list[Step]:
    """The kernel takes the place of the newest states as a further operand."""
    net = m["net"]
    return [Step(table().get(net), net, (net, *net.src, m["kept"]))]
