"""What reads each weight is found from the graphs: every weight of a model is read, by the ops that
its block is made of."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any

import pytest

from dev import tiny_models as tiny
from ggml_py.tensor import Tensor
from llama_py.graph.linear import ExpertLinear, Linear, Norm
from llama_py.hparams import HParams
from llama_py.loading.weight_users import find_weight_users
from llama_py.model import Model
from tests.support.graph_models import load, split
from tests.support.live_models import changed, model_of

NAMES = [f"{arch}-{variant}" for arch, variant in tiny.every()]

# What llama.cpp declares although its graph leaves it out.
NOT_READ = {
    "gemma3n-shared": ["blk.2[01].attn_[kv].weight", "blk.2[01].attn_k_norm.weight"],
    "deci-plain": ["rope_factors_short.weight"],  # for contexts shorter than any
    "minicpm3-dense": ["rope_factors_short.weight"],  # likewise
    "phi3-long": ["rope_factors_short.weight"],  # likewise
    "phimoe": ["rope_factors_short.weight"],
    "kimi-k3": ["blk.0.attn_res_score.weight"],
}


def readers(model: Model) -> dict[str, set[str]]:
    """The ops that read each weight, by its name."""
    found: dict[str, set[str]] = {}
    nodes = find_weight_users(model.architecture, model._weights.all_tensors)
    for t in model._weights.all_tensors:
        found.setdefault(t.name, set()).update(node.op for node in nodes[id(t)])
    return found


def loaded(name: str) -> Model:
    return load(name, load_mtp=name.endswith("-mtp"))


def parts(thing: Any) -> Iterator[Linear | ExpertLinear | Norm]:
    """The matrices and norms in a block and in its blocks."""
    if isinstance(thing, Linear | ExpertLinear | Norm):
        yield thing
    elif isinstance(thing, list | tuple):
        for item in thing:
            yield from parts(item)
    elif type(thing).__module__.startswith("llama_py.") and not isinstance(thing, HParams):
        names = [*getattr(type(thing), "__slots__", ()), *getattr(thing, "__dict__", ())]
        for name in names:
            yield from parts(getattr(thing, name))


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_is_read(name: str) -> None:
    left_out = NOT_READ.get(name, NOT_READ.get(split(name)[0], []))
    found = readers(loaded(name))
    unread = {t for t, ops in found.items() if not ops}
    assert unread == {t for t in found if any(fnmatch(t, pattern) for pattern in left_out)}


def matrices(part: Linear | ExpertLinear | Norm) -> Iterator[tuple[Tensor | None, set[str]]]:
    """The tensors of a part, and the ops that may read them."""
    if isinstance(part, Norm):
        yield part.weight, {"MUL"}
        yield part.bias, {"ADD"}
    elif isinstance(part, Linear):
        yield part.weight, {"MUL_MAT"}
        yield part.bias, {"ADD"}
        yield part.scale, {"MUL"}
    else:
        yield part.weight, {"MUL_MAT_ID"}
        yield part.bias, {"ADD_ID"}
        yield part.scale, {"RESHAPE"}


@pytest.mark.parametrize("name", NAMES)
def test_matrices_multiply_and_norms_scale(name: str) -> None:
    model = loaded(name)
    nodes, n = find_weight_users(model.architecture, model._weights.all_tensors), 0
    for part in parts(model.architecture):
        for t, expected in matrices(part):
            if t is not None and nodes[id(t)]:
                assert {node.op for node in nodes[id(t)]} == expected, t.name
                n += 1
    assert n > 10


def test_a_tied_head_is_read_beside_the_embeddings() -> None:
    model = load("llama-dense")
    nodes = find_weight_users(model.architecture, model._weights.all_tensors)
    embeddings, head = model.architecture.token_embd, model.architecture.output.weight
    assert embeddings.name == head.name
    assert {node.op for node in nodes[id(embeddings)]} == {"GET_ROWS"}
    assert {node.op for node in nodes[id(head)]} == {"MUL_MAT"}


def test_a_draft_layer_is_read_only_where_it_is_loaded() -> None:
    metadata, arrays = changed("qwen35moe-mtp")
    assert "blk.2.nextn.eh_proj.weight" not in readers(model_of(metadata, arrays))
    found = readers(model_of(metadata, arrays, load_mtp=True))
    assert found["blk.2.nextn.eh_proj.weight"] == {"MUL_MAT"}
