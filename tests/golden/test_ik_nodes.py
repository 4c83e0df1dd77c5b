"""With states in slots, the first half of delta-net layers is ik_llama.cpp's, node for node: from
the norm of what goes in to the sum. (Its experts and attention are made of other ops.)"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from dev.record.golden import ik
from dev.record.golden.engines import Ours
from ggml_py.inspection.dump import Record, diff
from tests.support.graph_models import split

# The number of a function of one argument is another one there; an op's name says which it is.
NUMBERED = {"SILU", "SOFTPLUS", "FUSED_MUL_UNARY"}
CHECKPOINTS = {
    f"per_step_{here}_l{il}": f"per_step_{there}_l{il}"
    for here, there in (("conv", "qkv"), ("ssm", "ssm"))
    for il in range(3)
}


@cache
def ours(name: str, n_rs_seq: int) -> dict[str, list[Record]]:
    """The nodes of each batch."""
    options: dict[str, Any] = {"n_seqs": 4, "unified": True, "forms": {"delta_net": "slots"}}
    found = {}
    with TemporaryDirectory() as folder:
        path = ik.write(*split(name), Path(folder))
        with Ours(path, "null", nodes=True, n_rs_seq=n_rs_seq, **options) as engine:
            for run, batch in ik.batches().items():
                engine.nodes.clear()
                engine.run(batch)
                found[run] = as_there(engine.nodes)
    return found


def as_there(nodes: list[Record]) -> list[Record]:
    """Our nodes with what is otherwise there: a norm with its weight is one op; both kinds of
    convolution have one name; checkpoints are of one slot, not a row for each."""
    found: list[Record] = []
    for node in nodes:
        if node["op"] == "VIEW" and node["src"][0]["name"] in CHECKPOINTS:
            continue
        node = {**node, "src": [{**s, "name": there(s["name"])} for s in node["src"]]}
        norm = found[-1] if found else node
        if node["op"] == "MUL" and norm["op"] == "RMS_NORM" and is_of(node, norm):
            weight = {**node["src"][1], "k": 1}
            found[-1] = {
                **norm,
                "op": "FUSED_RMS_NORM",
                "name": node["name"],
                "src": [*norm["src"], weight],
            }
        else:
            found.append({**node, "op": node["op"].replace("SSM_CONV_SEQ", "SSM_CONV")})
    return found


def there(source: str) -> str:
    return CHECKPOINTS.get(source.removesuffix(" (view)"), source)


def is_of(node: Record, norm: Record) -> bool:
    return bool(node["src"][0]["name"] == norm["name"])


def first_half(nodes: list[Record], il: int) -> list[Record]:
    """Of a layer, before the norm of its feed-forward. What the layer is given, what it gives on
    (which what follows may rename), and nodes whose names only count are called alike."""
    reads = f"blk.{il}.post_attention_norm.weight"
    end = next(i for i, x in enumerate(nodes) if any(s["name"] == reads for s in x["src"]))
    before = [i for i, x in enumerate(nodes) if x["name"] == f"l_out-{il - 1}"] or [
        i for i, x in enumerate(nodes) if x["src"][0]["name"] == "token_embd.weight"
    ]
    given, own = nodes[before[-1]]["name"], nodes[before[-1] + 1 : end]
    unnamed = [x["name"] for x in own if x["name"].startswith("node_")]
    names = {given: "given", f"{given} (view)": "given (view)"}
    names |= {name: f"unnamed {i}" for i, name in enumerate(unnamed)}
    *found, last = (renamed(x, names) for x in own)
    return [*found, {**last, "name": "result"}]


def renamed(node: Record, names: dict[str, str]) -> Record:
    same = {key: node[key] for key in ("op", "type", "ne", "nb", "offs")}
    src = [
        {"k": s["k"], "name": names.get(s["name"], s["name"]), "ne": s["ne"], "nb": s["nb"]}
        for s in node["src"]
    ]
    params = [] if node["op"] in NUMBERED else node["params"]
    of = {key: names.get(node[key], node[key]) for key in ("name", "view_src")}
    return {**of, **same, "params": params, "src": src}


def test_all_are_recorded() -> None:
    assert ik.recorded() == sorted(f"{arch}-{variant}" for arch, variant in ik.models())


@pytest.mark.parametrize("run", [*ik.batches()])
@pytest.mark.parametrize("name", ik.recorded())
def test_nodes_equal_the_recorded_ones(name: str, run: str) -> None:
    found = ours(name, ik.N_STEPS - 1 if run == "checkpoints" else 0)[run]
    expected = ik.nodes(*split(name))[run]
    for il in range(3):
        assert str(diff(first_half(found, il), first_half(expected, il)) or "") == "", il
