"""The delta net's short convolution: CONCAT, SSM_CONV and SILU without the joined inputs."""

from __future__ import annotations

from ggml_opencl.ops._states import view_states
from ggml_opencl.table import Launch, defines, fuse, items
from ggml_py.fusion import f32_rows
from ggml_py.fusion.pattern import Match
from ggml_py.patterns.ssm import CONCAT_CONV_SILU, CONV_IN_CACHE
from ggml_py.patterns.states import rows_of_cache
from ggml_py.tensor import Tensor


def why_not_plain(m: Match) -> str:
    other = [t for t in (m["x"], *m.all_nodes("kept")) if t.type.name != "f32"]
    return f"needs f32; got {other[0]}" if other else f32_rows("state", "weight")(m)


def of_one_token(m: Match) -> str:
    """Return "" for one token and sequence, else the reason. The kernel reads the cache directly,
    so a work item may write only elements that no other item reads."""
    state, cache = m["joined"].source(0), m["state"].source(0)
    if m["conv"].ne[1:3] != (1, 1) or state.n_elements != cache.ne[0] or not state.is_contiguous():
        return f"needs one token, and its row of inputs; got {m['conv']} and {cache}"
    return why_not_plain(m) or rows_of_cache(m, 1)


def inputs(kept: Tensor, like: Tensor) -> tuple[Tensor, int]:
    """Return the kept inputs as [D - 1, C, B], and the index of the first time."""
    looked = kept.source(0)
    width, n_channels, n_seqs, _ = like.ne
    step, apart = kept.nb[0], kept.nb[1 if kept.ne[:2] == (width * n_channels, n_seqs) else 2]
    nb = (step, step * width, apart, apart * n_seqs)
    t = Tensor(kept.type, (width, n_channels, n_seqs), nb=nb)
    t.buffer, t.offset = kept.buffer, kept.offset
    return t, looked.view_offs // looked.nb[0]


def convolution(m: Match, source: Tensor, *ids: Tensor) -> list[Launch]:
    """Return launches into a result that may have another shape, elements in order."""
    like, dst = m["joined"].source(0), Tensor(m["y"].type, m["conv"].ne)
    dst.buffer, dst.offset = m["y"].buffer, m["y"].offset
    (kept, first), *others = [inputs(t, like) for t in m.all_nodes("kept")]
    tensors, given = (source, m["x"], m["weight"], dst, kept, *ids), defines(IN_ROWS=len(ids))

    def run(kernel: str, tensors: tuple[Tensor, ...], n: int, first: int, checked: bool) -> Launch:
        return Launch("fused/ssm", kernel, tensors, items(n), (first,), given, checked=checked)

    keep = [run("keep_inputs", (source, m["x"], t), t.n_elements, j, False) for t, j in others]
    return [run("conv_silu", tensors, dst.n_elements, first, bool(ids)), *keep]


@fuse(CONV_IN_CACHE, when=of_one_token)
def conv_in_the_cache(m: Match) -> list[Launch]:
    width, n_channels, *_ = m["joined"].source(0).ne
    return convolution(m, view_states(m["state"].source(0), width, n_channels), m["ids"])


@fuse(CONCAT_CONV_SILU, when=why_not_plain)
def short_convolution(m: Match) -> list[Launch]:
    return convolution(m, m["state"])
