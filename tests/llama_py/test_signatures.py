"""What may be given is declared once, and every function that takes it says so."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import llama_py
from llama_py import AnswerParams, ContextParams, GenerateParams, Model, ModelParams, SamplingParams
from llama_py.loading.model import LoadOptions
from llama_py.params import other_names
from llama_py.params.answer_options import AnswerOptions, StreamOptions
from llama_py.params.option import Params

ROOT = Path(__file__).parents[2]


def names(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def of(params: type[Params]) -> list[str]:
    return [f.name for f in fields(params)]


WITH_TOOLS = ["messages", "tools", "tool_choice", "parallel_tool_calls", "images", "media_path"]


@pytest.mark.parametrize(
    ("function", "first", "params"),
    [
        (llama_py.Context, ["model"], ContextParams),
        (llama_py.stream, ["ctx", "prompt"], GenerateParams),
        (Model.generate, ["prompt"], AnswerParams),
        (Model.stream, ["prompt"], AnswerParams),
        (Model.chat, WITH_TOOLS, AnswerParams),
    ],
)
def test_fields_are_the_keywords(
    function: Callable[..., Any], first: list[str], params: type[Params]
) -> None:
    assert names(function) == [*first, *of(params)]
    parameters = inspect.signature(function).parameters
    for f in fields(params):
        assert parameters[f.name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[f.name].annotation == f.type


def test_a_context_of_a_model_has_its_size_first() -> None:
    others = [name for name in of(ContextParams) if name != "n_ctx"]
    assert names(Model.context) == ["n_ctx", *others]


def test_a_model_takes_the_fields_of_model_params() -> None:
    others = [name for name in of(ModelParams) if name != "device"]
    assert names(Model) == ["path", "device", *others]
    assert list(LoadOptions.__annotations__) == others
    types = {f.name: f.type for f in fields(ModelParams)}
    for name, reference in LoadOptions.__annotations__.items():
        assert reference.__forward_arg__ == types[name]


@pytest.mark.parametrize(
    ("options", "params", "other"),
    [
        (StreamOptions, GenerateParams, {}),
        (AnswerOptions, AnswerParams, {"response_format": "Mapping[str, Any] | None"}),
    ],
)
def test_options_have_the_types_of_the_fields(
    options: Any, params: type[Params], other: dict[str, str]
) -> None:
    types = {f.name: f.type for f in fields(params)}
    aliases = {a: types[name] for a, name in other_names._ALIAS_OF.items() if name in types}
    found = {name: one.__forward_arg__ for name, one in options.__annotations__.items()}
    assert found == types | aliases | other


PROGRAM = """
import llama_py

FORMAT = {"type": "json_object"}


def look(n: int) -> str:
    return "seen"


with llama_py.load(n_gpu_layers=0) as model:
    text: str = model.generate(prompt="A", temperature=0, max_new_tokens=8, stop="B", top_k=1)
    text = model.generate("A", n_predict=3, stop=["B", "C"], response_format=FORMAT)
    for piece in model.stream("A", temp=0.5, max_tokens=3, repetition_penalty=1.1):
        text += piece.text
    text = model.infill("A", "B", extra=[{"text": "C"}], temperature=0)
    text = model.chat("A", temperature=0.5, response_format=FORMAT, images=[])
    calls = model.chat("A", tools=[look], tool_choice="required", num_predict=3).tool_calls
    text += "".join(piece.text for piece in model.stream_chat("A", guided_regex="[0-9]+"))
    ctx = model.context()
    text += "".join(piece.text for piece in llama_py.stream(ctx, "A", max_new_tokens=3))
    talk = llama_py.Conversation(ctx, tools=[look])
    text += "".join(piece.text for piece in talk.ask("A", tool_choice="none", temperature=1))
    text += "".join(piece.text for piece in talk.run("A", n_predict=3))
    model.generate("A", temprature=0)  # refused
    model.generate("A", temperature="hot")  # refused
    model.stream("A", max_new_token=3)  # refused
    model.infill("A", "B", stops="C")  # refused
    model.chat("A", response_formats=FORMAT)  # refused
    model.chat("A", tools=[look], temprature=0)  # refused
    model.stream_chat("A", n_predicts=3)  # refused
    llama_py.stream(ctx, "A", temperature=0)  # refused
    talk.ask("A", tool_choices="none")  # refused
    talk.run("A", max_new_token=3)  # refused
"""


@pytest.mark.slow
def test_a_type_checker_knows_the_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mypy reports the lines that Python would refuse, and no others."""
    api = pytest.importorskip("mypy.api")
    monkeypatch.setenv("MYPYPATH", os.pathsep.join(map(str, (ROOT, ROOT / "backends"))))
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    how = ("--strict", "--follow-imports=silent", "--config-file=", f"--cache-dir={tmp_path}")
    shown, failed, _ = api.run([*how, str(path)])
    found = {int(n) for n in re.findall(r"program\.py:(\d+): error:", shown)}
    lines = PROGRAM.splitlines()
    assert not failed, failed
    assert found == {i for i, line in enumerate(lines, 1) if line.endswith("# refused")}, shown


def test_an_answer_takes_what_ends_it_and_how_it_is_chosen() -> None:
    assert set(of(AnswerParams)) == {*of(GenerateParams), *of(SamplingParams)}
    p = AnswerParams(temp=0.5, max_tokens=3)
    assert p.part(SamplingParams) == SamplingParams(temp=0.5)
    assert p.part(GenerateParams) == GenerateParams(max_tokens=3)


def test_options_that_do_not_exist_are_refused() -> None:
    with pytest.raises(TypeError, match="n_ctxx"):
        llama_py.Context(llama_py.load(None, "null"), n_ctxx=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="n_gpu_layer"):
        llama_py.load(None, "null", n_gpu_layer=5)  # type: ignore[call-arg]
