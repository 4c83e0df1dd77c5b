"""Values of a file's metadata that are replaced, and RoPE that is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError, HParamsError, ModelError
from llama_py.params import ModelParams
from llama_py.params.texts import kv_overrides

ARCH = "qwen35moe"


def logits(rope: dict[str, Any] | None = None, **values: bool | int | float | str) -> Any:
    overrides = {f"{ARCH}.{key.replace('__', '.')}": value for key, value in values.items()}
    with llama_py.load(device="ref", kv_overrides=overrides) as model:
        return model.context(256, **(rope or {})).decode([5, 6, 7, 8])


def test_rope_that_is_asked_for_is_that_of_a_file() -> None:
    plain = logits()
    linear = logits(rope__scaling__factor=4.0)
    assert not np.allclose(linear, plain, atol=1e-3)
    assert np.array_equal(logits({"rope_scale": 4.0}), linear)
    assert np.array_equal(logits({"rope_freq_scale": 0.25}), linear)
    yarn = logits(rope__scaling__factor=4.0, rope__scaling__type="yarn")
    assert not np.allclose(yarn, linear, atol=1e-3)
    assert np.array_equal(logits({"rope_scaling": "yarn", "rope_scale": 4.0}), yarn)
    assert np.array_equal(logits({"rope_scaling": "none"}, rope__scaling__factor=4.0), plain)
    base = logits(rope__freq_base=500.0)
    assert np.array_equal(logits({"rope_freq_base": 500.0}), base)
    assert not np.allclose(base, plain, atol=1e-3)
    for more in ({"yarn_ext_factor": 0.0}, {"yarn_beta_fast": 2.0}, {"yarn_orig_ctx": 100_000}):
        changed = logits({"rope_scaling": "yarn", "rope_scale": 4.0, **more})
        assert not np.allclose(changed, yarn, atol=1e-4), more


def test_one_scale() -> None:
    with pytest.raises(ContextError, match="pass only one"):
        logits({"rope_scale": 4.0, "rope_freq_scale": 0.25})


def test_a_key_of_another_type_or_of_no_file(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(HParamsError, match=r"block_count must be .*got 'four'"):
        logits(block_count="four")
    assert caplog.messages == []
    with llama_py.load(device="null", kv_overrides={"my.key": True}) as model:
        assert model.file.metadata["my.key"] is True
        assert model.file.metadata["general.architecture"] == ARCH
    added, unknown = caplog.messages
    assert added == "kv_overrides: key my.key is not in the file; it is added"
    assert "does not know are ignored (1): my.key = True;" in unknown


def test_the_tokenizer_heeds_them() -> None:
    values = {"tokenizer.ggml.bos_token_id": 3, "tokenizer.ggml.add_bos_token": True}
    with llama_py.load(device="null", kv_overrides=values) as model:
        assert model.tokenize("A")[0] == 3


def test_the_text_of_overrides() -> None:
    text = 'a.b=int:-3,c=float:1e-5,d=bool:false,"e=str:x,y=z",f=str:'
    assert kv_overrides(text) == {"a.b": -3, "c": 1e-5, "d": False, "e": "x,y=z", "f": ""}
    for wrong in ("a", "a=3", "=int:3", "a=long:3", "a=int:x", "a=bool:maybe"):
        with pytest.raises(ValueError, match="expected"):
            kv_overrides(wrong)
    assert ModelParams(kv_overrides={"a": 1}).kv_overrides == {"a": 1}
    with pytest.raises(ModelError, match="kv_overrides"):
        ModelParams(kv_overrides="a=int:3")  # type: ignore[arg-type]
