"""The fuzzers run, find what they are to find, and what they once found is refused cleanly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from dev.torture.fuzz.judge import harmful, judge
from dev.torture.fuzz.kind import find, names, numbered
from dev.torture.fuzz.kinds.itself import WAYS
from dev.torture.fuzz.kinds.state import sealed
from dev.torture.fuzz.run import run
from ggml_py import errors
from ggml_ref.backend import RefDevice
from llama_py.adapters.control_vector import load_directions
from llama_py.adapters.lora import Adapter
from llama_py.chat import ChatTemplate
from llama_py.gguf.file import GGUFFile
from llama_py.grammar import compile_grammar
from llama_py.loading.model import DEMO
from llama_py_tools.graph.dumps import read_records
from llama_py_tools.test_backend_ops.op_file import read_cases
from llama_py_tools.test_backend_ops.run import evaluate

CORPUS = Path(__file__).parents[1] / "data" / "fuzz"
INDEX: dict[str, list[str]] = json.loads((CORPUS / "index.json").read_text())
CASES = {
    "gguf": 40,
    "vocab": 60,
    "template": 25,
    "split": 10,
    "state": 6,
    "adapter": 8,
    "calls": 6,
    "ops": 20,
    "nodes": 10,
    "lookup": 5,
    "grammar": 60,
    "schema": 60,
}
SEED = 587  # for which each way to go wrong comes once
EXPECTED = {
    "crash": "signal 11",
    "foreign": "KeyError",
    "hang": "no answer in 12 s",
    "raw": "raw in a message",
    "warn": "RuntimeWarning",
    "swallow": "MemoryError",
}


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_found(name: str, tmp_path: Path) -> None:
    kind = find(name)(tmp_path)
    for number in range(CASES[name]):
        case = numbered(kind, 1, number)
        verdict = judge(case)
        assert verdict.kind != "found", f"{name} 1 {number}: {case.words}\n{verdict.text}"


def test_every_kind_is_run() -> None:
    assert {*names()} == CASES.keys() | {"itself"}


def test_a_case_is_what_its_number_says(tmp_path: Path) -> None:
    kind = find("vocab")(tmp_path)
    words = [numbered(kind, 3, n).words for n in (5, 6, 5)]
    assert words[0] == words[2] != words[1]


def test_crashes_and_hangs_are_found_and_the_run_goes_on(tmp_path: Path) -> None:
    kind, ways = find("itself")(tmp_path), {way.__name__ for way in WAYS}
    told = [numbered(kind, SEED, n).words for n in range(len(WAYS))]
    assert {*told} == ways  # each once
    totals = run("itself", SEED, 0, len(told), limit=2.0)
    assert totals.kinds == {"ran": 2, "refused": 1, "found": len(WAYS) - 3}
    for found in totals.findings:
        assert found.words == told[found.number]
        assert EXPECTED[found.words] in found.text


def give(path: Path) -> Any:
    """To what reads files of its kind."""
    suffixes = "".join(path.suffixes)
    if suffixes == ".jinja":
        return ChatTemplate(path.read_text()).render([{"role": "user", "content": "a"}])
    if suffixes == ".vocab.gguf":
        return llama_py.load_tokenizer(path)
    if suffixes == ".adapter.gguf":
        return Adapter(path, "llama", {}, RefDevice())
    if suffixes == ".cvec.gguf":
        return load_directions([(path, 1.0)])
    kinds = {".gbnf": "grammar", ".lark": "lark", ".schema.json": "json_schema"}
    if suffixes in kinds:
        return compile_grammar(kinds[suffixes], path.read_text())
    if suffixes == ".jsonl":
        return read_records(str(path))
    return llama_py.load(path, device="ref")


@pytest.mark.parametrize("name", [name for name in INDEX if not name.endswith(".ops")])
def test_what_was_found_is_refused(name: str) -> None:
    error, said = INDEX[name]
    with pytest.raises(getattr(errors, error), match=said) as caught:
        give(CORPUS / name)
    assert not harmful(str(caught.value))


@pytest.mark.parametrize("name", [name for name in INDEX if name.endswith(".ops")])
def test_an_op_that_makes_no_sense_fails(name: str) -> None:
    status, said = INDEX[name]
    (case,) = read_cases(CORPUS / name)
    outcome = evaluate(case, RefDevice(), RefDevice())
    assert outcome.status.name == status and said in outcome.reason


def test_the_corpus_is_described() -> None:
    assert {p.name for p in CORPUS.iterdir()} == {*INDEX, "index.json"}
    assert sum(p.stat().st_size for p in CORPUS.iterdir()) < 300_000


def test_a_file_that_was_read_may_be_cut(tmp_path: Path) -> None:
    """Where it is only mapped, that ends the process: nothing can be done against it then."""
    path = tmp_path / "m.gguf"
    path.write_bytes(DEMO.read_bytes())
    with GGUFFile.open(path) as mapped, GGUFFile.open(path, use_mmap=False) as file:
        assert file.metadata.keys() == mapped.metadata.keys()
        first = {name: t.data[:64].copy() for name, t in mapped.tensors.items()}
        mapped.close()
        path.write_bytes(b"")
        for name, t in file.tensors.items():
            assert not t.data.flags.writeable
            np.testing.assert_array_equal(t.data[:64], first[name])
            t.data.sum()


def test_texts_of_a_state_are_shown_harmlessly(tmp_path: Path) -> None:
    """Its checksum is right, but another has written what it says of itself."""
    kind = find("state")(tmp_path)
    with kind.models[0].context(n_ctx=32) as ctx:
        data = ctx.save_state()
        for at in (24, 50, 60):
            with pytest.raises(errors.ContextError) as caught:
                ctx.load_state(sealed(data[:at] + b"\x1b\n" + data[at + 2 :]))
            assert not harmful(str(caught.value))
