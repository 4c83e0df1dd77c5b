"""Types within a budget, and errors of types."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from ggml_py.errors import GGUFError
from ggml_py.types import BY_NAME
from llama_py.gguf.file import GGUFFile
from llama_py.quantize.budget import Candidate, choose_types, find_hull
from llama_py.quantize.errors import list_types, measure_errors, round_trip
from tests.support.gguf_writer import Tensor, gguf, kv, write

RNG = np.random.default_rng(11)


def problem(n_tensors: int, n_types: int) -> dict[str, list[Candidate]]:
    return {
        f"t{i}": [
            Candidate(int(RNG.integers(10, 200)), float(RNG.random()), f"type{j}")
            for j in range(n_types)
        ]
        for i in range(n_tensors)
    }


def best(tensors: dict[str, list[Candidate]], most_bytes: int) -> float:
    """Return the least loss of all choices."""
    return min(
        sum(c.loss for c in choice)
        for choice in itertools.product(*tensors.values())
        if sum(c.nbytes for c in choice) <= most_bytes
    )


def test_near_the_optimum() -> None:
    ratios = []
    for _ in range(30):
        tensors = problem(6, 4)
        least = sum(min(c.nbytes for c in candidates) for candidates in tensors.values())
        budget = least + int(RNG.integers(1, 300))
        chosen = choose_types(tensors, most_bytes=budget)
        assert sum(c.nbytes for c in chosen.values()) <= budget
        ratios.append(sum(c.loss for c in chosen.values()) / best(tensors, budget))
    assert min(ratios) >= 1 - 1e-12
    assert np.mean(ratios) < 1.15


def test_hull() -> None:
    made = [Candidate(*c) for c in ((1, 8.0, "a"), (2, 7.5, "b"), (3, 2.0, "c"), (4, 3.0, "d"))]
    assert [c.type for c in find_hull(made)] == ["a", "c"]


def test_smallest_types_for_a_loss() -> None:
    tensors = {"x": [Candidate(1, 4.0, "a"), Candidate(2, 1.0, "b"), Candidate(9, 0.5, "c")]}
    assert choose_types(tensors, most_loss=1.0)["x"].type == "b"
    with pytest.raises(
        GGUFError, match=r"no types reach a KL divergence of 0.1; the smallest is 0.5"
    ):
        choose_types(tensors, most_loss=0.1)


def test_too_few_bytes() -> None:
    with pytest.raises(GGUFError, match=r"the smallest types need 5; raise --bpw or --size"):
        choose_types({"x": [Candidate(5, 1.0, "a")]}, most_bytes=4)


def test_errors_of_types(tmp_path: Path) -> None:
    """They fall with the bits, and differ with importance."""
    x = RNG.standard_normal((8, 256)).astype(np.float32)
    tensor = Tensor("blk.0.attn_q.weight", (256, 8), 0, x.tobytes())
    keys = [kv("general.architecture", "str", "none")]
    with GGUFFile.open(write(tmp_path, gguf(keys, [tensor]), "m.gguf")) as file:
        t = file.tensors["blk.0.attn_q.weight"]
        types = [BY_NAME[name] for name in ("q4_0", "iq4_ks", "q8_0")]
        plain = measure_errors(t, types, None)
        weights = RNG.random((1, 256)).astype(np.float32)
        weighted = measure_errors(t, types, weights)
        names = [type.name for type in list_types(t, True, False)]
    assert plain["q4_0"] > plain["iq4_ks"] > plain["q8_0"] > 0
    assert all(plain[name] != weighted[name] for name in plain)
    assert "q4_K" in names and "iq2_xxs" not in names and "iq4_ks" not in names
    diff = round_trip(BY_NAME["q4_0"], False)(x, None) - x
    wanted = float((diff**2).sum(dtype=np.float64) / (x.astype(np.float64) ** 2).sum())
    assert plain["q4_0"] == pytest.approx(wanted, rel=1e-6)
