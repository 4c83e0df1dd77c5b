"""llama-cpp-python's interface: chats, embeddings, options, downloads."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import llama_py
import llama_py.compat
from llama_py.compat import llama_cpp
from llama_py.compat.llama_cpp import Llama, LlamaGrammar
from llama_py.compat.llama_cpp import llama_chat_format as formats
from llama_py.loading.model import DEMO
from tests.support.llama_cpp_python import ASK, PROMPT, YES, content, get_text, make

TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {
            "type": "object",
            "properties": {"n": {"enum": [1, 2]}},
            "required": ["n"],
            "additionalProperties": False,
        },
    },
}


def test_unknown_names_are_type_errors_with_the_known_ones(llm: Llama) -> None:
    with pytest.raises(
        TypeError, match=r"Llama has no option 'n_ctxt'; did you mean n_ctx\?.*seed"
    ):
        make(n_ctxt=3)
    with pytest.raises(TypeError, match="create_completion has no option 'max_token'"):
        llm(PROMPT, max_token=3)
    with pytest.raises(TypeError, match="create_chat_completion has no option 'echo'"):
        llm.create_chat_completion(ASK, echo=True)
    with pytest.raises(ValueError, match=r"Model path does not exist: none\.gguf"):
        Llama("none.gguf")
    with pytest.raises(AttributeError, match="no C functions"):
        llama_cpp.llama_decode  # noqa: B018


def test_options_without_effect_are_accepted() -> None:
    made = make(numa=True, main_gpu=0, no_perf=True, f16_kv=True, n_parts=-1, op_offload=True)
    assert made.n_ctx() == 256 and made.context_params.n_ctx == 256
    made.close()
    with pytest.raises(ValueError, match="no weights"):
        made("x")


def test_options_become_those_of_the_context() -> None:
    made = make(
        n_ctx=64,
        n_batch=512,
        type_k=llama_cpp.GGML_TYPE_Q8_0,
        type_v="q8_0",
        flash_attn=True,
        rope_scaling_type=llama_cpp.LLAMA_ROPE_SCALING_TYPE_LINEAR,
        rope_freq_scale=0.5,
        yarn_beta_fast=16.0,
        kv_overrides={"general.name": "other"},
    )
    p = made.context_params
    assert (p.n_batch, p.type_k, p.type_v, p.rope_scaling) == (64, "q8_0", "q8_0", "linear")
    assert (p.rope_freq_scale, p.yarn_beta_fast, p.yarn_beta_slow) == (0.5, 16.0, -1.0)
    assert made.metadata["general.name"] == "other"
    assert get_text(made(PROMPT, max_tokens=2))
    with pytest.raises(ValueError, match="pooling_type must be in"):
        make(pooling_type=9, embedding=True).embed("x")


def test_chats_are_those_of_the_model(llm: Llama, model: llama_py.Model) -> None:
    expected = model.chat(ASK, max_tokens=12, temp=0)
    found = llm.create_chat_completion(ASK, max_tokens=12, temperature=0)
    assert content(found) == expected and found["id"].startswith("chatcmpl-")
    assert found["object"] == "chat.completion" and found["usage"]["completion_tokens"] <= 12
    assert found["choices"][0].keys() == {"index", "message", "logprobs", "finish_reason"}
    chunks = list(llm.create_chat_completion(ASK, max_tokens=12, temperature=0, stream=True))
    deltas = [c["choices"][0]["delta"] for c in chunks]
    assert deltas[0] == {"role": "assistant"} and deltas[-1] == {}
    assert "".join(d.get("content", "") for d in deltas) == expected
    assert chunks[-1]["choices"][0]["finish_reason"] == found["choices"][0]["finish_reason"]
    asked = llm.create_chat_completion(ASK, max_tokens=2, temperature=0, logprobs=True)
    assert len(asked["choices"][0]["logprobs"]["content"]) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("legacy", [False, True])
def test_tools(llm: Llama, stream: bool, legacy: bool) -> None:
    how: dict[str, Any] = {"tools": [TOOL], "tool_choice": TOOL}
    if legacy:
        how = {"functions": [TOOL["function"]], "function_call": {"name": "look"}}
    found = make(n_ctx=1024).create_chat_completion(ASK, stream=stream, **how)
    if stream:
        *chunks, last = found
        calls = [
            c["choices"][0]["delta"]["tool_calls"][0]
            for c in chunks
            if "tool_calls" in c["choices"][0]["delta"]
        ]
        assert calls[0]["function"]["name"] == "look" and calls[0]["id"]
        arguments = "".join(c["function"]["arguments"] for c in calls)
        reason = last["choices"][0]["finish_reason"]
    else:
        message, reason = found["choices"][0]["message"], found["choices"][0]["finish_reason"]
        [call] = message["tool_calls"]
        arguments = call["function"]["arguments"]
        assert message["content"] is None and ("function_call" in message) == legacy
    assert reason == "tool_calls" and json.loads(arguments)["n"] in (1, 2)


@pytest.mark.parametrize(
    "form",
    [
        {"type": "json_object", "schema": {"enum": [3]}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": [3]}}},
    ],
)
def test_response_formats(llm: Llama, form: dict[str, Any]) -> None:
    assert content(llm.create_chat_completion(ASK, response_format=form, max_tokens=9)) == "3"
    grammar = LlamaGrammar.from_string(YES)
    found = llm.create_chat_completion(ASK, grammar=grammar, response_format={"type": "text"})
    assert content(found) in (" yes", " no")


def test_chat_formats_and_handlers(llm: Llama) -> None:
    prompts = []
    for name in ("llama-2", "chatml", None):
        made = make(chat_format=name)
        made.create_chat_completion(ASK, max_tokens=1)
        prompts.append(made.detokenize(made.eval_tokens, special=True))
    assert b"[INST]" in prompts[0] and b"im_start" in prompts[1] and len({*prompts}) == 3
    with pytest.raises(ValueError, match="unknown chat template 'alpaca2'"):
        make(chat_format="alpaca2")

    @formats.register_chat_format("shout")
    def shout(*, messages: Any, **_: Any) -> formats.ChatFormatterResponse:
        return formats.ChatFormatterResponse(messages[-1]["content"].upper(), stop="\n")

    made = make(chat_format="shout")
    found = made.create_chat_completion(ASK, max_tokens=5, temperature=0)
    assert content(found) == get_text(made("WHO ARE YOU?", max_tokens=5, temperature=0, stop="\n"))
    chunks = list(made.create_chat_completion(ASK, max_tokens=5, temperature=0, stream=True))
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == content(found)
    forced = {"type": "json_object", "schema": {"enum": [3]}}
    assert content(made.create_chat_completion(ASK, response_format=forced)) == "3"
    with pytest.raises(ValueError, match="already registered"):
        formats.register_chat_format("shout")(shout)
    with pytest.raises(ValueError, match="registered: shout"):
        formats.get_chat_completion_handler("whisper")
    assert make(chat_handler=lambda **given: given["messages"]).create_chat_completion(ASK) == ASK
    jinja = formats.Jinja2ChatFormatter("{{ bos_token }}{{ messages[0].content }}", "</s>", "<s>")
    assert jinja(messages=ASK).prompt == "<s>Who are you?"


def test_embeddings(llm: Llama) -> None:
    with pytest.raises(RuntimeError, match="embedding=True"):
        llm.embed("To be")
    made = make(embedding=True, pooling_type=llama_cpp.LLAMA_POOLING_TYPE_MEAN)
    [first, _], n = made.embed(["To be", "or not to be"], return_count=True)
    assert len(first) == made.n_embd() and n == sum(
        len(made.tokenize(t)) for t in (b"To be", b"or not to be")
    )
    assert np.allclose(made.embed("To be"), first, atol=1e-3) and made.pooling_type() == 1
    assert np.linalg.norm(made.embed("To be", normalize=True)) == pytest.approx(1)
    expected = made.llama_py_model.embed("To be", "mean", normalize=False)
    assert np.allclose(first, expected, atol=1e-3)
    found = made.create_embedding("To be")
    assert found["object"] == "list" and found["data"][0]["index"] == 0
    assert found["usage"] == {"prompt_tokens": 2, "total_tokens": 2}
    each = make(embedding=True).embed("To be")
    assert np.shape(each) == (2, made.n_embd())
    small = make(embedding=True, n_batch=4)
    assert len(small.embed("word " * 20)) == 4
    with pytest.raises(ValueError, match="exceed batch size of 4"):
        small.embed("word " * 20, truncate=False)


class Hub(ModuleType):
    """The functions of huggingface_hub that are used, with the demo model for every name."""

    def __init__(self, *names: str) -> None:
        super().__init__("huggingface_hub")
        self.names, self.asked = names, list[str]()

    def HfApi(self) -> Hub:
        return self

    def model_info(self, repo: str, **_: Any) -> Any:
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in self.names])

    def hf_hub_download(self, repo: str, name: str, **_: Any) -> Path:
        self.asked.append(name)
        return DEMO


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*q4_k_m.gguf", ["x-q4_k_m.gguf"]),
        (None, ["x-q4_k_m.gguf"]),
        ("*Q8_0*", ["a/x-Q8_0-00001-of-00002.gguf", "a/x-Q8_0-00002-of-00002.gguf"]),
    ],
)
def test_from_pretrained(
    monkeypatch: pytest.MonkeyPatch, pattern: str | None, expected: list[str]
) -> None:
    shards = [f"a/x-Q8_0-0000{i}-of-00002.gguf" for i in (1, 2)]
    found = Hub(*shards, "mmproj-F16.gguf", "x-q4_k_m.gguf", "README.md")
    monkeypatch.setitem(sys.modules, "huggingface_hub", found)
    made = Llama.from_pretrained("user/model", pattern, n_ctx=32, verbose=False)
    assert found.asked == expected and made.n_batch == 32
    Llama.from_pretrained("user/model", pattern, ["mmproj*"], verbose=False)
    assert found.asked == [*expected, *expected, "mmproj-F16.gguf"]
    loaded = llama_py.Model.from_pretrained("user/model", filename=pattern, n_gpu_layers=0)
    assert loaded.arch and found.asked[-len(expected) :] == expected
    for wrong, why in (("*Q2*", "no file matches"), ("*.gguf", "several files match")):
        with pytest.raises(ValueError, match=f"user/model: {why} {re.escape(repr(wrong))}"):
            Llama.from_pretrained("user/model", wrong)


def test_parts_of_other_kinds_are_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Hub("README.md", "eagle3-x-Q4_K_M.gguf", "x-F16.gguf", "x-Q8_0.gguf")
    monkeypatch.setitem(sys.modules, "huggingface_hub", found)
    assert Llama.from_pretrained("user/model", verbose=False) and found.asked == ["x-Q8_0.gguf"]
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub("README.md", "mmproj-F16.gguf"))
    with pytest.raises(ValueError, match="user/model: no GGUF file found"):
        llama_py.Model.from_pretrained("user/model")


def test_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "llama_cpp"]:
        monkeypatch.delitem(sys.modules, name)
    before = {*sys.modules}
    try:
        llama_py.compat.install()
        import llama_cpp as found  # type: ignore[import-not-found]
        import llama_cpp.llama_types as types  # type: ignore[import-not-found]

        assert found is llama_cpp and types is llama_cpp.llama_types
        assert found.CreateCompletionResponse is types.CreateCompletionResponse
        assert not {n for n in sys.modules if n.startswith("llama_cpp._")}
    finally:
        for name in {*sys.modules} - before:
            if name.partition(".")[0] == "llama_cpp":
                del sys.modules[name]
    other = ModuleType("llama_cpp")
    other.__file__ = "other.py"
    monkeypatch.setitem(sys.modules, "llama_cpp", other)
    with pytest.raises(ValueError, match=r"already imported from other\.py"):
        llama_py.compat.install()


def test_objects_of_the_openai_package(llm: Llama) -> None:
    pytest.importorskip("openai")
    found = llm.create_chat_completion_openai_v1(ASK, max_tokens=2)
    assert found.choices[0].message.role == "assistant"
    *_, last = llm.create_chat_completion_openai_v1(ASK, max_tokens=2, stream=True)
    assert last.choices[0].finish_reason in ("length", "stop")
