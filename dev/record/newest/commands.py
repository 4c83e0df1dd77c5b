"""The commands of the program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import llama_py
from dev import tiny_models as tiny
from dev.compare import judge_architectures
from dev.record import record_golden
from dev.record.golden import drafts, runs, store
from dev.record.golden import fixture as fixtures
from dev.record.golden.engines import Ours, target_of
from dev.record.golden.facts import facts_of
from dev.record.newest import key_names, mixed, quantize
from dev.record.newest.engine import Newest
from dev.record.newest.loader import N_TOKENS, Loader, find_names, names_like
from ggml_py.inspection.dump import Record, diff
from llama_py.gguf.file import GGUFFile
from llama_py.models import architecture

MARKS = "0001111044044440" + "0" * 24  # a question and its two options
N_NAMES = 24  # names that are printed for an error


def record(arch: str, folder: Path) -> None:
    """Record an architecture's models that are for this build."""
    for variant in variants(arch):
        if not tiny.find(arch, variant).newest:
            continue
        path = write(arch, variant, folder)
        print(f"{arch} {variant}: {path.stat().st_size} bytes", flush=True)
        record_golden.record(arch, variant, path, Newest)


def types(arch: str, folder: Path) -> None:
    """Record the types of tensors in quantized files of models that are for this build."""
    for variant in variants(arch):
        if tiny.find(arch, variant).newest:
            quantize.record(arch, variant, folder)


def vocab(name: str, folder: Path) -> None:
    """Record the ids of texts by a vocabulary."""
    from tests.support import vocabularies

    vocabularies.record([name])


def check(arch: str, folder: Path) -> None:
    """Compare recorded results with this build's."""
    for variant in variants(arch):
        about = store.about(arch, variant)
        path = write(arch, variant, folder)
        case = record_golden.case_of(arch, variant, path, about.facts, Newest)
        nodes, values = store.nodes(arch, variant), store.values(arch, variant)
        for run in about.runs:
            named = {k.removeprefix(f"{run}."): v for k, v in values.items()}
            expected = runs.Result(nodes.get(run, []), named)
            print(f"{arch} {variant} {run}: {differences(expected, runs.RUNS[run](case))}")


def judge(arch: str, folder: Path) -> None:
    """Write the architecture's row of docs/judged.md."""
    results = json.loads(judge_architectures.DATA.read_text(encoding="utf-8"))
    results[arch] = results.get(arch, {}) | {
        variant: judge_architectures.apart(arch, variant, Newest)
        for variant in variants(arch)
        if tiny.find(arch, variant).newest
    }
    judge_architectures.write(results)
    print(f"{arch}: {results[arch]}", flush=True)


def compare(name: str, folder: Path) -> None:
    """Compare this build with llama-py: a GGUF file, or an architecture's tiny models."""
    if (path := Path(name)).exists():
        return compare_file(path)
    for variant in variants(name):
        print(variant)
        compare_file(write(name, variant, folder), tiny.find(name, variant))
    return None


def compare_file(path: Path, made: tiny.Tiny | None = None) -> None:
    with GGUFFile.open(path) as file:
        keys = file.metadata
    arch = keys["general.architecture"]
    made = made or tiny.Tiny({"vocab_size": len(keys["tokenizer.ggml.tokens"])})
    facts = facts_of(arch, path, made, Newest)
    if architecture(arch).HParams.decides:
        made = replace(made, marks=made.marks or MARKS)
    elif not facts.logits and not made.pooling:
        made = replace(made, pooling=("none", "mean", "cls", "last"))
    target = target_of(path, made)
    theirs = runs.Case(made, facts, lambda **how: Newest(path, target=target, **how))
    ours = runs.Case(made, facts, lambda **how: Ours(path, target=target, **how))
    for run in runs.wanted(made, facts):
        said = differences(runs.RUNS[run](theirs), runs.RUNS[run](ours))
        print(f"{run}: {said}", flush=True)


def fixture(name: str, folder: Path) -> None:
    """Record this build's nodes of a file of test-llama-archs, and compare them."""
    path, stored = Path(name), dict(fixtures.stored())
    about = {**stored[path.stem], "nodes": {}}
    for flash in (True, False):
        engines = Newest(path, nodes=True, flash=flash), Ours(path, "null", nodes=True, flash=flash)
        theirs, ours = (fixtures.list_nodes(engine, about["memory"]) for engine in engines)
        print(diff(ours, theirs) or f"{len(theirs)} nodes are the same")
        about["nodes"]["on" if flash else "off"] = fixtures.digest(theirs)
    exact: dict[str, Any] = {"flash": False, "cache": "f32"}
    expected, found = (fixtures.logits(engine(path, **exact)) for engine in (Newest, Ours))
    about["newest"] = {"n": len(theirs), "nmse": fixtures.nmse(expected, found)}
    print(about["newest"])
    fixtures.save({**stored, path.stem: about})


def batches(arch: str, folder: Path) -> None:
    """Compare batches that mix tokens and embeddings, and write recorded results again."""
    if not architecture(arch).HParams.mixes_embd:
        raise SystemExit(f"architecture {arch!r} does not mix tokens and embeddings")
    for variant in variants(arch):
        made = tiny.find(arch, variant)
        path = tiny.write(arch, variant, folder)
        n_embd = llama_py.load(str(path)).hparams.n_embd_inp
        facts = facts_of(arch, path, made, Newest)
        theirs = runs.Case(made, facts, partial(Newest, path))
        ours = runs.Case(made, facts, partial(Ours, path))
        exact = {"flash": False, "cache": "f32"}
        graphs, found = (mixed.run(theirs, n_embd, **how) for how in ({"nodes": True}, exact))
        mixed.save(f"{arch}-{variant}", n_embd, graphs, found)
        mine = mixed.run(ours, n_embd, nodes=True), mixed.run(ours, n_embd, **exact)
        print(f"{arch} {variant} nodes: {differences(graphs, mine[0])}", flush=True)
        print(f"{arch} {variant} {differences(found, mine[1])}", flush=True)


def keys(arch: str, given: Mapping[str, Any], folder: Path) -> None:
    """Print the keys and tensors of an architecture."""
    from llama_cpp_py_sync._cffi_bindings import _find_library

    loader = Loader(arch, given, folder)
    message = loader.add_missing()
    key_names, tensor_names = find_names(Path(_find_library()))
    print("Keys (an example for each):")
    for name, value in loader.keys.items():
        print(f"  {name} = {value}")
    print("Tensors:")
    for tensor, shape in loader.tensors.items():
        print(f"  {tensor} {list(shape)}")
    if message:
        print_refusal(message, key_names, tensor_names)
    print("Optional keys:")
    for name, kind in loader.optional_keys(key_names):
        print(f"  {name} {kind}")
    print("Optional tensors:")
    for tensor, said in loader.optional_tensors(tensor_names):
        print(f"  {tensor} [{' '.join(said.split())}]")


def print_refusal(message: str, keys: list[str], tensors: list[str]) -> None:
    """Print an error that names no key or tensor, and the library's names with its words."""
    print("llama.cpp still refuses the file, so all lists are incomplete.")
    print(f"Give a key, or a tensor with its shape: {message.strip()}")
    found = [name.removeprefix("%s.") for name in names_like(message, keys)]
    print("Keys with words of this error:", ", ".join(found[:N_NAMES]))
    found = names_like(message, (name for name in tensors if "." in name))
    print("Tensors with words of this error:", ", ".join(found[:N_NAMES]))


def names(what: str, folder: Path) -> None:
    """Write the names of all keys, for the argument `keys`, or record the keys that an architecture
    reads."""
    from llama_cpp_py_sync._cffi_bindings import _find_library

    library = Path(_find_library())
    if what == "keys":
        key_names.write_names(library)
    else:
        key_names.record_read(what, library, folder)


def graph(arch: str, given: Mapping[str, Any], folder: Path, marks: str = "") -> None:
    """Print inputs and nodes for a file with the smallest keys and tensors that llama.cpp loads.

    The graphs are of three tokens and one more, then of the NextN layer, if the file has one; or of
    one batch with marks. Parameters have their index; zeros are omitted.
    """
    loader = Loader(arch, given, folder)
    if message := loader.add_missing():
        raise SystemExit(f"llama.cpp refuses the file: {message.strip()}")
    if marks:
        ids = [i % N_TOKENS for i in range(len(marks))]
        with Newest(loader.path, nodes=True, inputs=True, pooling="none") as engine:
            engine.run(replace(runs.batch(ids, outputs="all"), marks=[int(m) for m in marks]))
            return print_nodes(engine.nodes)
    with Newest(loader.path, nodes=True, inputs=True) as engine:
        engine.run(runs.batch([0, 1, 2]))
        if engine.api.llama_get_memory(engine.ctx):
            engine.run(runs.batch([0], 3))
        print_nodes(engine.nodes)
    if any("nextn.eh_proj" in name for name in loader.tensors):
        with Newest(loader.path, nodes=True, inputs=True, mtp=True) as engine:
            h = drafts.random_states(4, engine.n_embd_out)
            engine.set_embeddings_nextn(masked=True)
            engine.run(runs.batch([0, 1, 2], outputs="all", embd=h[:3]))
            engine.run(runs.batch([0], 3, embd=h[3:]))
            print_nodes(engine.nodes)
    return None


def print_nodes(nodes: list[Record]) -> None:
    """Print the nodes of graphs, each after the inputs that it is the first to read."""
    known = set[tuple[int, str]]()
    for node in nodes:
        for s in node["src"]:
            if "values" in s and (node["dec"], s["name"]) not in known:
                known.add((node["dec"], s["name"]))
                call = f"{s['name']} -> {s['type']} {s['ne']} {brief(s['values'])}"
                print(f"{node['dec']}    - {call}")
        sources = ", ".join(s["name"] for s in node["src"])
        params = {i: x for i, x in enumerate(node["params"]) if x}
        call = f"{node['name']} = {node['op']}({sources})"
        print(f"{node['dec']} {node['i']:4} {call} {params or ''} -> {node['type']} {node['ne']}")


def brief(values: NDArray[Any] | None) -> str:
    """Return an array in one line, without the middle of a large one."""
    if values is None:
        return ""
    how = {"float_kind": lambda x: f"{x:g}"}
    text = np.array2string(values.squeeze(), threshold=16, edgeitems=3, formatter=how)  # type: ignore[arg-type]
    return " ".join(text.split())


def write(arch: str, variant: str, folder: Path) -> Path:
    """Write a tiny model, and its target model if it only drafts."""
    if target := tiny.find(arch, variant).drafts_for:
        tiny.write(*target, folder)
    return tiny.write(arch, variant, folder)


def variants(arch: str) -> list[str]:
    return [variant for name, variant in tiny.every() if name == arch]


def differences(expected: runs.Result, found: runs.Result) -> str:
    """Return a text: the first different node, or the error of each array."""
    if expected.nodes:
        first = diff(found.nodes, expected.nodes)
        return str(first or f"{len(expected.nodes)} nodes are the same")
    each = ((key, distance(expected.values[key], x)) for key, x in found.values.items())
    return ", ".join(f"{key} {far:.1e}" for key, far in each)


def distance(expected: NDArray[Any], found: NDArray[Any]) -> float:
    """Return the normalized mean squared error."""
    if np.array_equal(expected, found, equal_nan=True):
        return 0.0
    a, b = expected.astype(np.float64), found.astype(np.float64)
    return float(np.square(a - b).sum() / np.square(a).sum())
