"""The model as users have it: text, answers, contexts, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import llama_py
from ggml_py.backend.registry import device
from ggml_py.errors import ContextError, ModelError
from llama_py.gguf.file import GGUFFile
from llama_py.weights.placement import Placement
from tests.support.commands import DEMO, demo_with_template

PROMPT = "First Citizen:\n"
GREEDY = {"temp": 0.0, "max_tokens": 6}
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}you: "


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[llama_py.Model]:
    """The demo model with a chat template."""
    path = demo_with_template(tmp_path_factory.mktemp("model"), TEMPLATE)
    with llama_py.Model(path, "ref") as model:
        yield model


def greedy(model: llama_py.Model, prompt: str, n: int = 6) -> str:
    """By a context of its own."""
    pieces = llama_py.stream(model.context(256), prompt, max_tokens=n)
    return "".join(piece.text for piece in pieces)


def reused(model: llama_py.Model) -> int:
    return model._own.n_reused if model._own else 0


class TestGenerate:
    def test_text(self, model: llama_py.Model) -> None:
        expected = greedy(model, PROMPT)
        assert model.generate(PROMPT, **GREEDY) == expected
        assert model.generate(model.tokenize(PROMPT), **GREEDY) == expected

    def test_a_seed_repeats(self, model: llama_py.Model) -> None:
        texts = [model.generate(PROMPT, seed=seed, max_tokens=12) for seed in (1, 2, 1)]
        assert texts[0] == texts[2] != texts[1]

    def test_stop(self, model: llama_py.Model) -> None:
        whole = model.generate(PROMPT, **GREEDY)
        stop = whole.split()[-1]
        assert model.generate(PROMPT, **GREEDY, stop=[stop]) == whole[: whole.index(stop)]

    def test_a_sampler_of_ones_own(self, model: llama_py.Model) -> None:
        class Always:
            def sample(self, logits: object) -> int:
                return model.tokenize("x", add_special=False)[0]

            def accept(self, id: int) -> None:
                """Nothing is remembered."""

        assert model.generate(PROMPT, sampler=Always(), max_tokens=3) == "xxx"

    def test_a_longer_prompt_goes_on(self, model: llama_py.Model) -> None:
        text = PROMPT + model.generate(PROMPT, **GREEDY)
        before, held = reused(model), len(model._own.tokens) if model._own else 0
        assert model.generate(text, **GREEDY) == greedy(model, text)
        assert reused(model) - before == held == len(model.tokenize(text)) - 1

    def test_a_prompt_that_is_too_long(self, model: llama_py.Model) -> None:
        n = model.hparams.n_ctx_train
        with pytest.raises(ContextError, match=f"a batch of {n + 1} tokens does not fit"):
            model.generate([5] * (n + 1), **GREEDY)
        assert model.generate(PROMPT, **GREEDY) == greedy(model, PROMPT)

    def test_options_are_checked_at_once(self, model: llama_py.Model) -> None:
        with pytest.raises(TypeError, match="max_token"):
            model.stream(PROMPT, max_token=3)  # type: ignore[call-arg]
        with pytest.raises(ModelError, match=r"top_p must be a number in .*got 2"):
            model.stream(PROMPT, top_p=2)


class TestStream:
    def test_pieces(self, model: llama_py.Model) -> None:
        pieces = list(model.stream(PROMPT, **GREEDY))
        assert "".join(p.text for p in pieces) == greedy(model, PROMPT)
        assert [p.gen_tokens for p in pieces] == [1, 2, 3, 4, 5, 6]
        assert [p.finish_reason for p in pieces] == [None] * 5 + ["length"]

    def test_a_new_answer_ends_the_one_before(self, model: llama_py.Model) -> None:
        first = model.stream("ROMEO:", **GREEDY)
        next(first)
        assert model.generate(PROMPT, **GREEDY) == greedy(model, PROMPT)
        assert list(first) == []
        assert model.generate("ROMEO:", **GREEDY) == greedy(model, "ROMEO:")

    def test_an_answer_that_was_left(self, model: llama_py.Model) -> None:
        for piece in model.stream(PROMPT, **GREEDY):
            if piece.gen_tokens == 2:
                break
        assert model.generate(PROMPT, **GREEDY) == greedy(model, PROMPT)


class TestChat:
    def test_a_question(self, model: llama_py.Model) -> None:
        assert model.chat("Speak!", **GREEDY) == greedy(model, "user: Speak!\nyou: ")

    def test_messages(self, model: llama_py.Model) -> None:
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
        expected = greedy(model, "system: Be brief.\nuser: Why?\nyou: ")
        assert model.chat(messages, **GREEDY) == expected

    def test_a_conversation_is_not_computed_twice(self, model: llama_py.Model) -> None:
        messages = [{"role": "user", "content": "Speak!"}]
        messages.append({"role": "you", "content": model.chat(messages, **GREEDY)})
        before = reused(model)
        model.chat([*messages, {"role": "user", "content": "Again!"}], **GREEDY)
        assert reused(model) - before >= len(model.tokenize("user: Speak!\nyou: "))


def test_text_to_tokens_and_back(model: llama_py.Model) -> None:
    ids = model.tokenize("To be, or not")
    assert ids == model.tokenizer.tokenize("To be, or not")
    assert model.detokenize(ids) == "To be, or not"
    end = next(iter(model.tokenizer.eog))
    text = model.detokenize([end], special=True)
    assert model.detokenize([end]) == "" != text
    assert model.tokenize(text, False) == [end] != model.tokenize(text, False, parse_special=False)


def test_contexts(model: llama_py.Model) -> None:
    with model.context(300, n_seq_max=2) as ctx:
        assert ctx.decode([5, 6]).shape == (1, model.hparams.n_vocab)
        assert repr(ctx) == "<Context of 512 cells, 2 sequences, qwen35moe>"
    with pytest.raises(ContextError, match="the context is closed; create another"):
        ctx.decode([5])
    assert model.context().n_ctx == model.hparams.n_ctx_train
    assert repr(model.context(256)) == "<Context of 256 cells, 1 sequence, qwen35moe>"


def test_states_are_saved_and_loaded(model: llama_py.Model) -> None:
    src, dst = model.context(512, n_seq_max=2), model.context(512, n_seq_max=2)
    src.decode([5, 6, 7])
    saved = src.save_state(0, tokens=[5, 6, 7])
    assert dst.load_state(saved, 1) == [5, 6, 7]
    assert dst.memory.seq_pos_max(1) == 2
    np.testing.assert_array_equal(src.decode([8]), dst.decode([8], seq_id=1))
    with pytest.raises(ContextError, match="state of one sequence"):
        dst.load_state(saved)
    checkpoint = src.save_state(0, partial=True)
    expected = src.decode([9])
    src.load_state(checkpoint, 0, partial=True)
    assert src.memory.seq_rm(0, 4)
    np.testing.assert_array_equal(src.decode([9]), expected)


def test_opening() -> None:
    with llama_py.Model(device="null") as demo:
        assert demo.arch == "qwen35moe" and Path(demo.file.path) == DEMO
        assert repr(demo) == f"<Model qwen35moe {DEMO} on null>"
    with llama_py.load(DEMO, ["ref", "cpu"], n_gpu_layers=1) as several:
        assert several.device_names == "ref,cpu"
        n = several.hparams.n_layer_all
        assert [d.name for d in several.layer_devices] == ["cpu"] * n + ["ref"]
    file, place = GGUFFile.open(DEMO), Placement((device("null"),))
    with llama_py.Model(file, place) as opened:
        assert (opened.file, opened.placement) == (file, place)


def test_closing(model: llama_py.Model) -> None:
    other = llama_py.Model(DEMO, "ref")
    pieces = other.stream(PROMPT, **GREEDY)
    next(pieces)
    own = other._own
    other.close()
    assert list(pieces) == []
    assert own is not None
    with pytest.raises(ContextError, match="closed"):
        own.ctx.decode([1])
    assert all(t.buffer is None for t in other._weights.all_tensors)
    other.close()
