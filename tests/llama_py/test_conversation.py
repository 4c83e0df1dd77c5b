"""Conversations: messages through the template, answers kept, nothing computed twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import llama_py
from ggml_py.errors import ContextError, ModelError
from llama_py import Conversation
from tests.commands import DEMO, demo_with_template

TEMPLATE = (
    "{% for m in messages %}{{ 'ROMEO' if m.role == 'assistant' else m.role }}:{{ m.content }}\n"
    "{% endfor %}{% if add_generation_prompt %}ROMEO:{% endif %}"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[llama_py.Model]:
    path = demo_with_template(tmp_path_factory.mktemp("chat"), TEMPLATE)
    with llama_py.Model(path, "ref") as model:
        yield model


def text(pieces: Iterator[llama_py.Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def fresh(model: llama_py.Model, prompt: str, n: int) -> str:
    """The greedy answer to a prompt that nothing came before."""
    return text(llama_py.stream(model.context(256), prompt, max_tokens=n))


def test_messages_and_answers_are_kept(model: llama_py.Model) -> None:
    talk = Conversation(model.context(256), "Be brief.")
    start = "system:Be brief.\nuser:Speak!\nROMEO:"
    first = text(talk.ask("Speak!", max_tokens=3))
    assert first == fresh(model, start, 3)
    prompt = f"{start}{first}\nuser:Again!\nROMEO:"
    assert text(talk.ask("Again!", max_tokens=3)) == fresh(model, prompt, 3)
    assert [m["role"] for m in talk.messages] == ["system", *["user", "assistant"] * 2]
    assert [m["content"] for m in talk.messages[:3]] == ["Be brief.", "Speak!", first]


def test_what_the_memory_has_is_not_computed_again(model: llama_py.Model) -> None:
    talk = Conversation(model.context(256))
    (*_, last) = talk.ask("Speak!", max_tokens=4)
    held = len(talk.prefix.tokens)
    assert held == last.prompt_tokens + 3
    ids = talk.say("Again!")
    assert talk.prefix.n_reused == held
    whole = Conversation.prompt(model, talk.messages)
    assert ids == whole[held:]


def test_tokens_are_those_of_say(model: llama_py.Model) -> None:
    talk = Conversation(model.context(256))
    ids = talk.say("Speak!")
    assert ids == Conversation.prompt(model, "Speak!") == model.tokenize("user:Speak!\nROMEO:")
    piece = next(talk.answer(ids, max_tokens=2))
    assert piece.prompt_tokens == len(ids)


@pytest.mark.parametrize("how", ["close", "ask", "clear"])
def test_an_answer_may_be_cut_short(model: llama_py.Model, how: str) -> None:
    """What was said until then is the answer, also where the next question ends it."""
    talk = Conversation(model.context(256))
    pieces = talk.ask("Speak!", max_tokens=9)
    said = next(pieces).text + next(pieces).text
    if how == "close":
        pieces.close()
    elif how == "ask":
        text(talk.ask("Again!", max_tokens=1))
    else:
        talk.clear()
        assert talk.messages == [] and talk.ctx.memory.seq_pos_max(0) == -1
        return
    assert talk.messages[:2] == [
        {"role": "user", "content": "Speak!"}, {"role": "assistant", "content": said},
    ]  # fmt: skip
    assert list(pieces) == []
    assert len(talk.prefix.tokens) == talk.ctx.memory.seq_pos_max(0) + 1


def test_a_sequence_of_its_own(model: llama_py.Model) -> None:
    ctx = model.context(512, n_seq_max=2)
    a, b = Conversation(ctx), Conversation(ctx, seq_id=1)
    answers = [text(talk.ask("Speak!", max_tokens=3)) for talk in (a, b)]
    assert answers[0] == answers[1]
    a.clear()
    assert [ctx.memory.seq_pos_max(s) for s in (0, 1)] == [-1, len(b.prefix.tokens) - 1]


def test_too_long_a_conversation_is_refused(model: llama_py.Model) -> None:
    talk = Conversation(model.context(256))
    talk.say("Speak!")
    before = list(talk.messages)
    with pytest.raises(ContextError, match=r"has \d+ tokens, but the context 256; use a larger"):
        talk.ask("Speak! " * 200)
    assert talk.messages == before


def test_a_model_without_a_template_cannot_chat() -> None:
    model: Any = llama_py.load(DEMO, "null")
    with pytest.raises(ModelError, match="no chat template, so it cannot chat; use generate"):
        Conversation(model.context(256))
    with pytest.raises(ModelError, match="no chat template"):
        model.chat("Speak!")
