"""Control vectors: directions out of files, and what they do to a layer's result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ggml_py.backend import get_tensor, registry
from ggml_py.errors import ContextError, GGUFError
from ggml_py.tensor import Tensor as Node
from ggml_py.types import F32
from llama_py.adapters.control_vector import PlacedDirections, load_directions
from llama_py.context import Context
from tests.support.gguf_writer import Tensor, gguf
from tests.support.graph_models import CONTINUING
from tests.support.live_models import EXACT, PROMPT, live, nmse


def file(path: Path, **tensors: list[float]) -> Path:
    """A file with tensors, `__` in a name being a dot."""
    rows = [(k.replace("__", "."), np.array(v, np.float32)) for k, v in tensors.items()]
    path.write_bytes(gguf([], [Tensor(k, [v.size], 0, v.tobytes()) for k, v in rows]))
    return path


def test_directions_of_files_are_added_up(tmp_path: Path) -> None:
    a = file(tmp_path / "a", direction__1=[1, 2], direction__3=[5, 6])
    b = file(tmp_path / "b", direction__2=[1, 1], direction__3=[1, 1])
    found = load_directions([(a, 1.0), (b, -2.0)])
    assert found.tolist() == [[1, 2], [-2, -2], [3, 4]]


def test_other_files_are_refused(tmp_path: Path) -> None:
    for number, (tensors, message) in enumerate(
        (
            ({"direction__0": [1.0]}, r"unknown tensor 'direction.0'; a control vector has only"),
            ({"direction__x": [1.0]}, r"tensor 'direction.x'"),
            ({"direction__99999": [1.0]}, r"tensor 'direction.99999'"),
            ({"output": [1.0]}, r"tensor 'output'"),
            (
                {"direction__1": [1.0], "direction__2": [1.0, 2.0]},
                "must have 1 elements like the others, got 2",
            ),
            ({}, r"no tensors direction\.1"),
        )
    ):
        with pytest.raises(GGUFError, match=message):
            load_directions([(file(tmp_path / str(number), **tensors), 1.0)])


@pytest.mark.parametrize("name", CONTINUING)
def test_a_direction_is_added_to_the_result_of_its_layer(name: str) -> None:
    seen: list[str] = []
    ctx = Context(live(name, "cpu"), **EXACT)
    plain, direction = ctx.decode(PROMPT, "all"), np.linspace(-1, 1, ctx.model.hparams.n_embd)
    directions = direction.astype(np.float32)[None]
    ctx.set_control_vector(directions)
    ctx.on_graph = lambda res, _: seen.extend(
        s.name for t in res.graph.nodes for s in t.src if s and s.name.startswith("direction.")
    )
    ctx.clear()
    moved = ctx.decode(PROMPT, "all")
    assert seen == ["direction.1"]
    assert nmse(plain, moved) > 1e-12  # otherwise the same, bit for bit
    ctx.clear()
    ctx.set_control_vector(0 * directions)
    assert (ctx.decode(PROMPT, "all") == plain).all()
    for off in (None, directions):
        ctx.clear()
        ctx.set_control_vector(off, range(2, 9))  # there is no such layer
        assert (ctx.decode(PROMPT, "all") == plain).all()


def test_a_direction_moves_the_stream_by_itself() -> None:
    """The last layer's result, which is only normed afterwards."""
    results = []
    ctx = Context(live("llama-dense"), **EXACT, watch=lambda t: t.name == "l_out-1" and keep(t))
    directions = np.linspace(-1, 1, 64).astype(np.float32)[None]

    def keep(t: object) -> None:
        from llama_py_tools.measure.node_text import read_values

        results.append(read_values(t))  # type: ignore[arg-type]

    for d in (None, directions):
        ctx.clear()
        ctx.set_control_vector(d)
        ctx.decode(PROMPT)
    np.testing.assert_allclose(results[1] - results[0], directions[None, None], atol=1e-5)


def test_each_layer_has_its_direction() -> None:
    directions = np.arange(8, dtype=np.float32).reshape(2, 4)
    placed = PlacedDirections(directions, [registry.device("cpu")] * 3, 4, None)
    cur = Node(F32, (4, 1))
    assert placed.add_direction(cur, 0) is cur
    for il in (1, 2):
        assert (get_tensor(placed.add_direction(cur, il).src[1]) == directions[il - 1]).all()


def test_sizes_must_fit_the_model() -> None:
    ctx = Context(live("llama-dense"), n_ctx=256)
    for shape in ((1, 63), (64,)):
        with pytest.raises(ContextError, match=r"must have shape \[n_layer - 1, 64\]"):
            ctx.set_control_vector(np.zeros(shape, np.float32))
