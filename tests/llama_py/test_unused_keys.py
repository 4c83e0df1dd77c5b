"""Keys of a file that no code reads: none of llama.cpp's, or named in a warning or an error."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import llama_py
from dev import tiny_models as tiny
from dev.record.golden import fixture
from dev.record.newest.key_names import recorded_keys
from ggml_py.errors import HParamsError
from llama_py.hparams.known_keys import KNOWN_KEYS
from llama_py.hparams.unused_keys import check_unused_keys
from llama_py.models import architecture
from tests.support.graph_models import known, split
from tests.support.live_models import made, model_of

# llama.cpp b11739 reads these keys, and other values change neither nodes nor logits.
WITHOUT_EFFECT = {
    "": (
        "attention.causal",
        "attention.key_length_swa",
        "attention.value_length_swa",
        "rope.dimension_count_swa",
        "rope.scaling.alpha",
        "rope.scaling.finetuned",
    ),
    "deepseek32": ("rope.dimension_sections",),
    "ernie4_5": ("rope.dimension_sections",),
    "ernie4_5-moe": ("rope.dimension_sections",),
    "gemma4-assistant": ("attention.shared_kv_layers",),
    "glm-dsa": ("rope.dimension_sections",),
    "grok": ("attention.temperature_length", "router_logit_softcapping"),
    "hrm_text": ("hrm.prefix_lm",),
    "k2-horizon": ("moe_every_n_layers",),
    "mistral3": ("realtime_delay_tokens",),  # delay of transcribed audio
    "nemotron_h": ("expert_shared_count",),
    "nemotron_h_moe": ("expert_shared_count",),
    "wavtokenizer-dec": ("embedding_length_out",),
}
# Models with these keys have tensors `decision.*`, which are refused.
REFUSED = {"lfm2": ("decision.block_count",), "modern-bert": ("decision.block_count",)}


def check(metadata: dict[str, Any], **more: Any) -> None:
    """Check metadata with additional keys; `__` in a name is a dot."""
    metadata = metadata | {key.replace("__", "."): value for key, value in more.items()}
    kind = architecture(metadata["general.architecture"])
    hp = kind.HParams(metadata, kind.arch)
    check_unused_keys("x.gguf", metadata, hp, kind.folds == kind.arch)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    caplog.clear()
    return [text for text in found if "metadata keys" in text]


@pytest.mark.parametrize("name", recorded_keys())
def test_keys_that_llama_cpp_reads_are_read(name: str) -> None:
    arch, _ = split(name)
    allowed = {*WITHOUT_EFFECT[""], *WITHOUT_EFFECT.get(arch, ()), *REFUSED.get(arch, ())}
    hp = known(name).hparams
    read = {f"{arch}.{key}" for key in recorded_keys()[name] if key not in allowed}
    assert not read - hp.keys_read


def test_names_that_llama_cpp_reads_are_known() -> None:
    assert {key for keys in recorded_keys().values() for key in keys} <= KNOWN_KEYS


def test_complete_files_have_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    for (arch, _), one in tiny.every().items():
        check(tiny.metadata(arch, one))
    for about in fixture.stored().values():  # llama.cpp's saver writes all keys
        check(about["metadata"])
    assert not warnings(caplog)


def test_the_demo_has_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    llama_py.load()
    assert not warnings(caplog)


LLAMA, QWEN3 = made("llama-dense")[0], made("qwen3-dense")[0]


@pytest.mark.parametrize(
    ("metadata", "key", "value"),
    [
        (LLAMA, "llama__rope__wavelets", 5),
        (LLAMA, "llama__attention__window_kind", "dilated"),
        (LLAMA, "llama__down_scale", 0.5),
        (LLAMA, "llama__post_norms", [True, False]),
        (made("gemma3-dense")[0], "gemma3__rope__global__freq_base", 1e6),
        (QWEN3, "prism__hadamard2__block_size", 32),
        (QWEN3, "other__rotation", np.ones(4, np.float32)),
        (QWEN3, "other__input_signs", [1, -1]),
    ],
)
def test_unknown_keys_of_the_computation_are_refused(
    metadata: dict[str, Any], key: str, value: Any
) -> None:
    name = key.replace("__", ".")
    with pytest.raises(
        HParamsError, match="all keys that change the computation, but does not know"
    ) as caught:
        check(metadata, **{key: value})
    assert f"{name} = " in str(caught.value) and "--remove KEY" in str(caught.value)


@pytest.mark.parametrize(
    ("metadata", "key", "value"),
    [
        (LLAMA, "llama__rope__wavelets", 0),
        (LLAMA, "llama__attention__window_kind", "none"),
        (LLAMA, "llama__down_scale", 1.0),
        (LLAMA, "llama__post_norms", [False, False]),
        (LLAMA, "llama__favorite_color", "blue"),
        (LLAMA, "llama__vision__attention__head_count", 4),
        (LLAMA, "qwen3__rope__freq_base", 1e6),
        (LLAMA, "transformers__version", "5.0"),
        (LLAMA, "publisher__signature", "abc"),
        (made("gemma3-dense")[0], "prism__hadamard2__block_size", 32),
    ],
)
def test_other_unknown_keys_are_named(
    metadata: dict[str, Any], key: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    check(metadata, **{key: value})
    (text,) = warnings(caplog)
    assert text.startswith("x.gguf: metadata keys that llama-py does not know are ignored (1): ")
    assert key.replace("__", ".") in text


def test_many_keys_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    check(LLAMA, **{f"notes__{i}": "x" * 100 for i in range(12)})
    (text,) = warnings(caplog)
    assert "(12)" in text and "notes.4 = 'xxx" in text and " and 7 more;" in text
    assert len(text) < 600


@pytest.mark.parametrize(
    "key", ["general__rope", "quantize__imatrix__file", "llama__tensor_data_layout", "split__no"]
)
def test_notes_and_names_of_llama_cpp_are_no_fault(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    check(LLAMA, **{key: 3})
    assert not warnings(caplog)


def test_models_are_checked(caplog: pytest.LogCaptureFixture) -> None:
    metadata, arrays = made("llama-dense")
    model_of(metadata | {"llama.favorite_color": "blue"}, arrays)
    assert len(warnings(caplog)) == 1
    with pytest.raises(HParamsError, match=r"llama\.rope\.wavelets = 5"):
        model_of(metadata | {"llama.rope.wavelets": 5}, arrays)
