"""What a user may choose: checked as it is declared, told by field, value and rule."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, dataclass, fields, replace
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
from llama_py.params.option import Params, option, options_of
from llama_py.params.rules import BIASES, each, integers, numbers, one_of
from llama_py.params.texts import device_names, logit_bias, tensor_rules

KINDS = [ContextParams, GenerateParams, ModelParams, SamplingParams]

WRONG: list[tuple[type[Params], dict[str, Any], str]] = [
    (SamplingParams, {"top_p": 1.5}, r"top_p is 1.5; it must be a number in \[0, 1\]"),
    (SamplingParams, {"min_p": -0.1}, r"min_p is -0.1; it must be a number in \[0, 1\]"),
    (SamplingParams, {"temp": math.nan}, "temp is nan; it must be a finite number"),
    (SamplingParams, {"temp": "hot"}, "temp is 'hot'; it must be a finite number"),
    (SamplingParams, {"top_k": 1.5}, "top_k is 1.5; it must be an integer"),
    (SamplingParams, {"top_k": True}, "top_k is True; it must be an integer"),
    (SamplingParams, {"seed": 2**32}, "seed is .* an integer in .*4294967295"),
    (SamplingParams, {"repeat_penalty": 0}, "repeat_penalty is 0; .* of at least 1e-38"),
    (SamplingParams, {"repeat_last_n": -1}, "repeat_last_n is -1; it must be an integer in"),
    (SamplingParams, {"frequency_penalty": math.inf}, "frequency_penalty is inf"),
    (SamplingParams, {"samplers": "top_k;tops"}, "samplers is 'top_k;tops'; .* of penalties, dry"),
    (SamplingParams, {"samplers": 3}, "samplers is 3; it must be of penalties"),
    (SamplingParams, {"sampler_seq": "kz"}, "sampler_seq is 'kz'; .* characters edskypmxtia"),
    (SamplingParams, {"min_keep": -1}, "min_keep is -1; it must be an integer of at least 0"),
    (SamplingParams, {"dynatemp_range": -1}, "dynatemp_range is -1; .* of at least 0"),
    (SamplingParams, {"dynatemp_exp": math.nan}, "dynatemp_exp is nan; .* of at least 0"),
    (SamplingParams, {"dry_base": 0.5}, "dry_base is 0.5; it must be a number of at least 1"),
    (SamplingParams, {"dry_multiplier": math.inf}, "dry_multiplier is inf; .* a finite number"),
    (SamplingParams, {"dry_allowed_length": -1}, "dry_allowed_length is -1; .* integer in"),
    (SamplingParams, {"dry_penalty_last_n": -1}, "dry_penalty_last_n is -1; .* integer in"),
    (SamplingParams, {"dry_sequence_breakers": "abc"}, "'abc'; it must be a sequence of texts"),
    (SamplingParams, {"dry_sequence_breakers": 3}, "is 3; it must be a sequence of texts"),
    (SamplingParams, {"adaptive_target": 1.5}, "adaptive_target is 1.5; .* of at most 1"),
    (SamplingParams, {"adaptive_decay": 1.0}, "adaptive_decay is 1.0; .* in .0, 0.99."),
    (SamplingParams, {"mirostat": 3}, "mirostat is 3; it must be an integer in .0, 2."),
    (SamplingParams, {"mirostat_lr": -1}, "mirostat_lr is -1; it must be a number in"),
    (SamplingParams, {"logit_bias": {1.5: 1.0}}, "logit_bias is {1.5: 1.0}; .* id or text"),
    (SamplingParams, {"logit_bias": {1: math.nan}}, "logit_bias is {1: nan}; .* by token id"),
    (ContextParams, {"n_ctx": -1}, "n_ctx is -1; it must be an integer of at least 1 or None"),
    (ContextParams, {"n_batch": 0}, "n_batch is 0; it must be an integer of at least 1"),
    (ContextParams, {"n_batch": None}, "n_batch is None"),
    (ContextParams, {"n_ubatch": 0}, "n_ubatch is 0"),
    (ContextParams, {"n_seq_max": 0}, "n_seq_max is 0"),
    (ContextParams, {"n_seq_max": 257}, r"n_seq_max is 257; it must be .* \[1, 256\]"),
    (ContextParams, {"n_rs_seq": -1}, "n_rs_seq is -1; it must be an integer of at least 0"),
    (ContextParams, {"flash_attn": []}, r"flash_attn is \[\]; it must be one of auto, on, off"),
    (ContextParams, {"embeddings": "off"}, "embeddings is 'off'; it must be one of True, False"),
    (GenerateParams, {"max_tokens": 1.5}, "max_tokens is 1.5; it must be an integer"),
    (ModelParams, {"n_cpu_moe": -1}, "n_cpu_moe is -1; it must be an integer of at least 0"),
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
    options = [o for _, o in options_of(kind)]
    flags = [flag for o in options for flag in (*o.flags, *o.off)]
    assert len(set(flags)) == len(flags) and all(flag.startswith("-") for flag in flags)
    names = [o.env for o in options if o.env]
    assert len(set(names)) == len(names) and all(n.startswith("LLAMA_ARG_") for n in names)
    assert all(o.help for o in options)
    assert names and all(o.env for o in options if o.flags)


@dataclass(frozen=True, kw_only=True)
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
    rule = each(one_of("ab"))
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
        with pytest.raises(TypeError, match="no option 'tmp'; did you mean temp"):
            model.generate("A", tmp=1)
        with pytest.raises(TypeError, match="no option 'n_ctxx'; did you mean n_ctx"):
            model.context(n_ctxx=1)
    with pytest.raises(TypeError, match=r"no option 'zzzz'$"):
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
    assert str(refused.value) == f"there is no option {name!r}; {hint}"


def test_other_names_are_names_of_options() -> None:
    known = {f.name for kind in (*KINDS, AnswerParams) for f in fields(kind)}
    assert {*other_names._OTHERS} - known == {"path"}
    assert not {*other_names._NAME_OF} & known


def test_what_is_no_text() -> None:
    with llama_py.load(device="null") as model:
        with pytest.raises(ModelError, match="chat takes a text or a list of messages, not int"):
            model.chat(5)  # type: ignore[call-overload]
        with pytest.raises(ModelError, match="embed takes a text or a list of texts, not int"):
            model.embed(5)  # type: ignore[arg-type]
