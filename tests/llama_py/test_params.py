"""What a user may choose: checked as it is declared, told by field, value and rule."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError, ModelError
from llama_py.params import (
    AnswerParams,
    ContextParams,
    GenerateParams,
    ModelParams,
    SamplingParams,
    other_names,
)
from llama_py.params.option import Params, get_options, option
from llama_py.params.rules import BIASES, choice_rule, integers, item_rule, numbers
from llama_py.params.texts import device_names, logit_bias, tensor_rules

KINDS = [ContextParams, GenerateParams, ModelParams, SamplingParams]

WRONG: list[tuple[type[Params], dict[str, Any], str]] = [
    (SamplingParams, {"top_p": 1.5}, r"top_p must be a number in \[0, 1\].*, got 1.5"),
    (SamplingParams, {"min_p": -0.1}, r"min_p must be a number in \[0, 1\].*, got -0.1"),
    (SamplingParams, {"temp": math.nan}, "temp must be a finite number.*, got nan"),
    (SamplingParams, {"temp": "hot"}, "temp must be a finite number.*, got 'hot'"),
    (SamplingParams, {"top_k": 1.5}, "top_k must be an integer.*, got 1.5"),
    (SamplingParams, {"top_k": True}, "top_k must be an integer.*, got True"),
    (SamplingParams, {"seed": 2**32}, "seed must be an integer in .*4294967295"),
    (SamplingParams, {"repeat_penalty": 0}, "repeat_penalty must .*of at least 1e-38.*, got 0"),
    (SamplingParams, {"repeat_last_n": -1}, "repeat_last_n must be an integer in.*, got -1"),
    (SamplingParams, {"frequency_penalty": math.inf}, "frequency_penalty must .*, got inf"),
    (
        SamplingParams,
        {"samplers": "top_k;tops"},
        "samplers must be a list of penalties, dry.*, got 'top_k;tops'",
    ),
    (SamplingParams, {"samplers": 3}, "samplers must be a list of penalties.*, got 3"),
    (
        SamplingParams,
        {"sampler_seq": "kz"},
        "sampler_seq must .*characters edskypmxtia.*, got 'kz'",
    ),
    (SamplingParams, {"min_keep": -1}, "min_keep must be an integer of at least 0.*, got -1"),
    (SamplingParams, {"dynatemp_range": -1}, "dynatemp_range must .*of at least 0.*, got -1"),
    (SamplingParams, {"dynatemp_exp": math.nan}, "dynatemp_exp must .*of at least 0.*, got nan"),
    (SamplingParams, {"dry_base": 0.5}, "dry_base must be a number of at least 1.*, got 0.5"),
    (
        SamplingParams,
        {"dry_multiplier": math.inf},
        "dry_multiplier must .*a finite number.*, got inf",
    ),
    (SamplingParams, {"dry_allowed_length": -1}, "dry_allowed_length must .*integer in.*, got -1"),
    (SamplingParams, {"dry_penalty_last_n": -1}, "dry_penalty_last_n must .*integer in.*, got -1"),
    (
        SamplingParams,
        {"dry_sequence_breakers": "abc"},
        "dry_sequence_breakers must be a list of strings.*, got 'abc'",
    ),
    (
        SamplingParams,
        {"dry_sequence_breakers": 3},
        "dry_sequence_breakers must be a list of strings.*, got 3",
    ),
    (SamplingParams, {"adaptive_target": 1.5}, "adaptive_target must .*of at most 1.*, got 1.5"),
    (SamplingParams, {"adaptive_decay": 1.0}, "adaptive_decay must .*in .0, 0.99..*, got 1.0"),
    (SamplingParams, {"mirostat": 3}, "mirostat must be an integer in .0, 2..*, got 3"),
    (SamplingParams, {"mirostat_lr": -1}, "mirostat_lr must be a number in.*, got -1"),
    (
        SamplingParams,
        {"logit_bias": {1.5: 1.0}},
        "logit_bias must .*id or string.*, got {1.5: 1.0}",
    ),
    (
        SamplingParams,
        {"logit_bias": {1: math.nan}},
        "logit_bias must .*by token id.*, got {1: nan}",
    ),
    (ContextParams, {"n_ctx": -1}, "n_ctx must be an integer of at least 1 or None.*, got -1"),
    (ContextParams, {"n_batch": 0}, "n_batch must be an integer of at least 1.*, got 0"),
    (ContextParams, {"n_batch": None}, "n_batch must .*, got None"),
    (ContextParams, {"n_ubatch": 0}, "n_ubatch must .*, got 0"),
    (ContextParams, {"n_seq_max": 0}, "n_seq_max must .*, got 0"),
    (ContextParams, {"n_seq_max": 257}, r"n_seq_max must be .* \[1, 256\].*, got 257"),
    (ContextParams, {"n_rs_seq": -1}, "n_rs_seq must be an integer of at least 0.*, got -1"),
    (ContextParams, {"flash_attn": []}, r"flash_attn must be one of auto, on, off.*, got \[\]"),
    (ContextParams, {"embeddings": "off"}, "embeddings must be one of True, False.*, got 'off'"),
    (GenerateParams, {"max_tokens": 1.5}, "max_tokens must be an integer.*, got 1.5"),
    (ModelParams, {"n_cpu_moe": -1}, "n_cpu_moe must be an integer of at least 0.*, got -1"),
]


@pytest.mark.parametrize(("kind", "values", "message"), WRONG)
def test_wrong_values(kind: type[Params], values: dict[str, Any], message: str) -> None:
    error = ContextError if kind is ContextParams else ModelError
    with pytest.raises(ModelError, match=message) as caught:
        kind(**values)
    assert caught.type is error
    with pytest.raises(error):
        replace(kind(), **values)


def test_numbers_of_numpy_are_numbers() -> None:
    assert ContextParams(n_ctx=np.int64(5), n_threads=None).n_ctx == 5  # type: ignore[arg-type]
    assert SamplingParams(top_p=np.float32(0.5), temp=0).top_p == 0.5  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_flags_and_variables_are_told_apart(kind: type[Params]) -> None:
    options = [o for _, o in get_options(kind)]
    flags = [flag for o in options for flag in (*o.flags, *o.off)]
    assert len(set(flags)) == len(flags) and all(flag.startswith("-") for flag in flags)
    names = [o.env for o in options if o.env]
    assert len(set(names)) == len(names) and all(n.startswith("LLAMA_ARG_") for n in names)
    assert all(o.help for o in options)
    assert names and all(o.env for o in options if o.flags)


class Small(Params):
    """Two fields."""

    names: dict[str, int] = option(dict, "--names", "a mapping")
    size: int = option(1, "", "how large", check=integers(1))


def test_a_dataclass() -> None:
    small = Small()
    assert (small.names, small.size) == ({}, 1)
    assert small.names is not Small().names
    assert Small.__doc__ == f"Two fields.\n\n{'names':<16} a mapping\n{'size':<16} how large"
    with pytest.raises(FrozenInstanceError):
        small.size = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        Small(1)  # type: ignore[call-arg, misc]


def test_rules() -> None:
    assert integers(0).holds(10**400)
    assert [numbers(0, 1).holds(x) for x in (0, 1, 0.5, 2, math.nan, "1", True)] == (
        [True, True, True, False, False, False, False]
    )
    assert [numbers(0, 1, above=True).text, integers(2, 3).text] == (
        ["a number in (0, 1]", "an integer in [2, 3]"]
    )
    rule = item_rule(choice_rule("ab"))
    assert rule.holds(("a", "b")) and not rule.holds(("a", "c"))
    assert rule.text == "values that are each one of a, b"
    assert BIASES.holds({1: -math.inf}) and not BIASES.holds(3)


def test_texts() -> None:
    assert logit_bias("15043+1.5") == {15043: 1.5}
    assert logit_bias("7-inf") == {7: -math.inf}
    assert device_names("OpenCL0/cpu") == device_names("opencl0,cpu") == ("opencl0", "cpu")
    assert tensor_rules("a=b=cpu,c=ref") == {"a=b": "cpu", "c": "ref"}
    for text in ("", "7", "7=1", "7+x", "-7+1", "7+-1e"):
        with pytest.raises(ValueError, match="15043"):
            logit_bias(text)


def test_names_that_there_are_not() -> None:
    with llama_py.load(device="null") as model:
        with pytest.raises(TypeError, match="unknown option 'tmp'; did you mean temp"):
            model.generate("A", tmp=1)
        with pytest.raises(TypeError, match="unknown option 'n_ctxx'; did you mean n_ctx"):
            model.context(n_ctxx=1)
    with pytest.raises(TypeError, match=r"unknown option 'zzzz'$"):
        llama_py.load(zzzz=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        (AnswerParams, "temperature", "did you mean temp?"),
        (AnswerParams, "n_predict", "did you mean max_tokens?"),
        (AnswerParams, "max_new_tokens", "did you mean max_tokens?"),
        (SamplingParams, "repetition_penalty", "did you mean repeat_penalty?"),
        (GenerateParams, "top_k", "use model.generate(prompt, top_k=...)"),
        (GenerateParams, "temperature", "use model.generate(prompt, temp=...)"),
        (AnswerParams, "ctx_size", "use model.context(n_ctx=...)"),
        (ModelParams, "n_ctx", "use model.context(n_ctx=...)"),
        (ModelParams, "num_ctx", "use model.context(n_ctx=...)"),
        (ModelParams, "ngl", "did you mean n_gpu_layers?"),
        (ModelParams, "model_path", "did you mean path?"),
        (ContextParams, "n_gpu_layers", "use llama_py.load(path, n_gpu_layers=...)"),
    ],
)
def test_other_names_of_options(kind: type[Params], name: str, hint: str) -> None:
    with pytest.raises(TypeError) as refused:
        kind(**{name: 1})
    assert str(refused.value) == f"unknown option {name!r}; {hint}"


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({"max_new_tokens": 4, "temperature": 0}, {"max_tokens": 4, "temp": 0}),
        ({"n_predict": 30, "temp": 0, "stop": "\n"}, {"max_tokens": 30, "temp": 0, "stop": ["\n"]}),
        (
            {"response_format": {"type": "json_object", "schema": {"enum": [3]}}},
            {"json_schema": {"enum": [3]}},
        ),
        ({"response_format": {"type": "text"}, "num_predict": 1, "seed": 1}, {"max_tokens": 1}),
        ({"guided_regex": "[0-9]{2}", "random_seed": 1}, {"regex": "[0-9]{2}"}),
    ],
)
def test_names_of_other_libraries(options: dict[str, Any], same: dict[str, Any]) -> None:
    with llama_py.load() as model:
        expected = model.generate("ROMEO:", **{"seed": 1, **same})
        assert model.generate("ROMEO:", **options) == expected
        asked = model.chat("Who?", **{"seed": 1, **same})
        assert model.chat("Who?", **options) == asked
        assert "".join(p.text for p in model.stream_chat("Who?", **options)) == asked


def test_an_option_may_be_given_once() -> None:
    with llama_py.load(device="null") as model:
        with pytest.raises(TypeError, match="max_new_tokens sets max_tokens, which is set twice"):
            model.generate("A", max_tokens=1, max_new_tokens=1)
        with pytest.raises(TypeError, match="response_format sets json_schema, which is set twice"):
            model.generate("A", json_schema={}, response_format={"type": "json_object"})
        with pytest.raises(ModelError, match="response_format type must be one of"):
            model.chat("A", response_format={"type": "xml"})


def test_other_names_are_names_of_options() -> None:
    known = {f.name for kind in (*KINDS, AnswerParams) for f in fields(kind)}
    assert {*other_names._OTHERS} - known == {"path"}
    assert not {*other_names._NAME_OF} & known


def test_what_is_no_text() -> None:
    with llama_py.load(device="null") as model:
        with pytest.raises(ModelError, match="chat takes a string or a list of messages, got int"):
            model.chat(5)  # type: ignore[call-overload]
        with pytest.raises(ModelError, match="embed takes a string or a list of strings, got int"):
            model.embed(5)  # type: ignore[arg-type]
