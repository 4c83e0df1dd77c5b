"""GATED_DELTA_NET that leaves the new states where CPY would put them."""

from __future__ import annotations

from ggml_cpu.step import Step
from ggml_cpu.window import Window, rewrite


@rewrite("GATED_DELTA_NET")
def states_to_the_cache(w: Window, i: int) -> None:
    """The kernel takes the place of the newest states as a further operand."""
    y = w.step(i).node
    value, state = y.src[2], y.src[5]
    if value is None or state is None or y.param("n_snapshots") != 1:
        return
    copy = state_copy(w, i, 4 * value.n_elements)
    if copy < 0:
        return
    kept = w.step(copy).node
    if kept.ne[0] * kept.ne[1] != state.n_elements or kept.ne[1] != state.ne[3] or kept.nb[0] != 4:
        return
    step = Step(w.step(i).kernel, y, (y, *y.src, kept), y.op_params())
    w.merge((i, copy), i, step, writes=(kept,))


def state_copy(w: Window, i: int, outputs: int) -> int:
    """The step that copies the new states; -1 if they are also read otherwise."""
    found = -1
    for j in w.readers_of(w.step(i).node):
        for s in w.step(j).node.src:
            if s is None or s.view_src is not w.step(i).node or s.view_offs + s.nbytes <= outputs:
                continue
            if found >= 0 or w.op(j) != "CPY" or s.view_offs != outputs or not s.is_contiguous():
                return -1
            found = j
    return found
