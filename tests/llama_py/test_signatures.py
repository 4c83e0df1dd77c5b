"""What may be given is declared once, and every function that takes it says so."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

import llama_py
from llama_py import AnswerParams, ContextParams, GenerateParams, Model, ModelParams, SamplingParams
from llama_py.loading.model import LoadOptions
from llama_py.params.option import Params


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
