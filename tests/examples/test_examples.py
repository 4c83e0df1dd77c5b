"""The examples run, and say what they promise."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from dev.compare.load.servers import ours, running
from llama_py import models
from tests.support.commands import DEMO

FOLDER = Path(__file__).parents[2] / "examples"


def example(name: str) -> ModuleType:
    """The script as a module."""
    spec = spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_every_example_is_run_here() -> None:
    names = {path.stem for path in FOLDER.glob("*.py")}
    assert names == {
        name.removeprefix("test_") for name in globals() if name.removeprefix("test_") in names
    }


def test_capture_activations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "found.npz"
    example("capture_activations").main(["-p", "ROMEO:\nBut", "-d", "ref", "-o", str(path)])
    found = np.load(path)
    assert list(found) == [f"l_out-{il}" for il in range(4)]
    assert {values.shape for values in found.values()} == {(3, 256)}
    assert "l_out-3" in capsys.readouterr().out


def test_write_an_architecture(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(models, "_REGISTERED", {})
    module = example("write_an_architecture")
    assert module.SideBySide.arch in models.known_architectures()
    module.main("ref")
    model, text, difference = capsys.readouterr().out.splitlines()
    assert model.startswith("<Model side-by-side ")
    assert re.fullmatch(r"[0-9a-f]{8,24}", text)  # llama.cpp's vocabulary for tests: numbers
    assert float(difference.split()[-1]) < 1e-4


def test_compare_two_quantizations(capsys: pytest.CaptureFixture[str]) -> None:
    compare = example("compare_two_quantizations")
    means = []
    for type in ("q8_0", "q4_0"):
        compare.main(["-d", "ref", "-t", type])
        out = capsys.readouterr().out
        means.append(float(re.findall(r"mean ([\d.]+)", out)[0]))
        assert out.count("normalised error of") == 3
    same, coarser = means
    assert same < 1e-3 < coarser


def test_answer_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = example("answer_choices")
    answer.main([])
    assert "accuracy: 100% of 2 questions" in capsys.readouterr().out
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps({"question": "ROMEO:", "choices": [" I", " xyz"], "answer": 1}))
    answer.main([str(file)])
    assert "* " in (out := capsys.readouterr().out) and "accuracy: 0% of 1 questions" in out


def test_call_functions(capsys: pytest.CaptureFixture[str]) -> None:
    example("call_functions").main([])
    found = capsys.readouterr().out
    assert re.search(r'^assistant: degrees\(\{\s*"city"', found, re.M)
    assert re.search(r"^tool: -?[\d.]+$", found, re.M)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of the demo model, on this machine."""
    command = ours(str(DEMO), n_ctx=4096, n_parallel=1, n_threads=1)
    with running(command, tmp_path_factory.mktemp("server") / "log") as url:
        yield f"{url}/v1"


def test_langchain_chat(request: pytest.FixtureRequest) -> None:
    pytest.importorskip("langchain_openai")
    found = example("langchain_chat").talk(request.getfixturevalue("server"))
    assert found["said"] and 0 <= found["person"].age <= 120
    assert found["result"] in (12.5, 3.0)


def test_llama_index_chat(request: pytest.FixtureRequest) -> None:
    pytest.importorskip("llama_index.llms.openai_like")
    found = example("llama_index_chat").talk(request.getfixturevalue("server"))
    assert found["said"] and found["result"] in (12.5, 3.0)
