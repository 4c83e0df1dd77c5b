"""Conversations: messages through the template, answers kept, nothing computed twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import llama_py
from ggml_py.errors import ContextError, ModelError
from llama_py import Conversation
from tests.support.commands import demo_with_template

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
    ids = talk.add_user_message("Again!")
    assert talk.prefix.n_reused == held
    whole = Conversation.prompt(model, talk.messages)
    assert ids == whole[held:]


def test_tokens_are_those_of_say(model: llama_py.Model) -> None:
    talk = Conversation(model.context(256))
    ids = talk.add_user_message("Speak!")
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
        {"role": "user", "content": "Speak!"},
        {"role": "assistant", "content": said},
    ]
    assert list(pieces) == []
    assert len(talk.prefix.tokens) == talk.ctx.memory.seq_pos_max(0) + 1


def test_a_sequence_of_its_own(model: llama_py.Model) -> None:
    ctx = model.context(512, n_seq_max=2)
    a, b = Conversation(ctx), Conversation(ctx, seq_id=1)
    answers = [text(talk.ask("Speak!", max_tokens=3)) for talk in (a, b)]
    assert answers[0] == answers[1]
    a.clear()
    assert [ctx.memory.seq_pos_max(s) for s in (0, 1)] == [-1, len(b.prefix.tokens) - 1]


THINKING = TEMPLATE.replace("ROMEO:{%", "ROMEO:<hm>{%")


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[llama_py.Model]:
    """What its answers begin with is left out of earlier turns."""
    path = demo_with_template(tmp_path_factory.mktemp("chat"), THINKING)
    with llama_py.Model(path, "cpu") as model:
        yield model


def test_an_answer_may_be_written_differently_later(thinker: llama_py.Model) -> None:
    """A state cannot go back, but there is a snapshot where the answer begins."""
    talk = Conversation(thinker.context(512))
    for said in ("Speak! " * 9, "Again!", "Once more!"):
        before = Conversation.prompt(thinker, talk.messages) if talk.messages else []
        answer = text(talk.ask(said, max_tokens=6))
        assert answer == fresh_answer(thinker, talk.messages[:-1], 6)
        told = talk.prefix.last_match
        assert told is not None and told.n_reused == told.n_same
        assert not before or told.n_same > len(before) - 15  # the end of it is an answer


def fresh_answer(model: llama_py.Model, messages: list[Any], n: int) -> str:
    ids = Conversation.prompt(model, messages)
    return text(llama_py.stream(model.context(512), ids, max_tokens=n))


@pytest.mark.parametrize("kv_unified", [False, True])
def test_what_the_system_says_is_computed_once(thinker: llama_py.Model, kv_unified: bool) -> None:
    """For eight users, each in a sequence of its own."""
    n_ctx = 2048 if kv_unified else 8 * 256
    ctx = thinker.context(n_ctx, n_seq_max=8, kv_unified=kv_unified)
    system = "Be brief. " * 30
    talks = [Conversation(ctx, system, seq_id) for seq_id in range(8)]
    questions = [f"Speak to {name}!" for name in "ABCDEFGH"]
    computed = []
    for talk, question in zip(talks, questions, strict=True):
        ids = talk.add_user_message(question)
        computed.append(len(ids))
        text(talk.answer(ids, max_tokens=2))
    shared = len(thinker.tokenize(f"system:{system}\nuser:"))
    assert computed[0] > shared > 60 and max(computed[1:]) < 12
    talks[0].clear()
    assert len(talks[0].add_user_message("And again!")) < 12


def test_the_last_question_may_be_asked_differently(thinker: llama_py.Model) -> None:
    long = [{"role": "user", "content": "Speak! " * 40}, {"role": "assistant", "content": "Ay."}]
    computed = []
    for question in ("Who?", "When?", "Why?"):
        thinker.chat([*long, {"role": "user", "content": question}], max_tokens=1)
        assert thinker._own is not None and thinker._own.last_match is not None
        computed.append(thinker._own.last_match.n_computed)
    assert computed[0] > 80 and max(computed[1:]) < 12


def test_too_long_a_conversation_is_refused(model: llama_py.Model) -> None:
    talk = Conversation(model.context(256))
    talk.add_user_message("Speak!")
    before = list(talk.messages)
    with pytest.raises(
        ContextError, match=r"has \d+ tokens, but the context holds 256; use a larger"
    ):
        talk.ask("Speak! " * 200)
    assert talk.messages == before


def test_the_oldest_turns_leave_a_full_context(model: llama_py.Model) -> None:
    """But not what the system says, and the message before the answer."""
    talk = Conversation(model.context(256), "Be brief.")
    asked = [f"Speak to {name}! " + "Ay. " * 20 for name in "ABCDE"]
    left = []
    for question in asked:
        text(talk.ask(question, max_tokens=4))
        left.append(talk.n_evicted_messages)
        assert talk.messages[0] == {"role": "system", "content": "Be brief."}
        assert talk.messages[-2]["content"] == question
    assert left[:2] == [0, 0] and sum(left) == 2 * (5 - len(talk.messages) // 2) > 0
    assert all(n % 2 == 0 for n in left)
    kept = [m["content"] for m in talk.messages if m["role"] == "user"]
    assert kept == asked[-len(kept) :]
    answer = talk.messages[-1]["content"]
    assert answer == fresh(model, Conversation.text(model, talk.messages[:-1]), 4)


def test_a_model_without_a_template_has_a_plain_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model: Any = llama_py.load(demo_with_template(tmp_path, None), "null")
    assert model.chat_template is None
    expected = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert [Conversation.text(model, "Hi") for _ in range(2)] == [expected] * 2
    assert [r.message for r in caplog.records] == ["the model has no chat template; chatml is used"]
    model.set_chat_template("zephyr")
    assert model.apply_chat_template("Hi", add_generation_prompt=False).startswith("<|user|>\nHi")
    with pytest.raises(ModelError, match="unknown chat template 'no'; known:"):
        model.set_chat_template("no")
    with pytest.raises(ModelError, match="line 1"):
        model.set_chat_template("{% if %}")
    assert model.apply_chat_template("Hi").startswith("<|user|>")


def test_a_template_that_is_none_is_told_of_when_the_model_is_loaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = demo_with_template(tmp_path, "{% if %}")
    with llama_py.Model(path, "null") as model:
        assert "chat template cannot be used: chat template, line 1" in caplog.text
        with pytest.raises(ModelError, match="chat template, line 1"):
            model.apply_chat_template("Hi")


# The demo model never ends its thoughts by itself, but a budget does.
THINKER = (
    "{% for m in messages %}{{ m.role }}:"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:"
    "{{ '<think>' if enable_thinking else '' }}{% endif %}"
)


@pytest.fixture(scope="module")
def thoughtful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[llama_py.Model]:
    path = demo_with_template(tmp_path_factory.mktemp("chat"), THINKER)
    with llama_py.Model(path, "cpu") as model:
        yield model


def test_thoughts_have_a_budget_and_are_no_part_of_the_answer(thoughtful: llama_py.Model) -> None:
    talk = Conversation(thoughtful.context(256), budget=5)
    pieces = list(talk.ask("Speak!", max_tokens=20))
    thought, said = "".join(p.reasoning for p in pieces), "".join(p.text for p in pieces)
    tokens = [p.token for p in pieces if p.token is not None]
    tokenizer, end = thoughtful.tokenizer, thoughtful.tokenize("</think>")
    assert tokens[5 : 5 + len(end)] == end
    assert thought == tokenizer.detokenize(tokens[:5])
    assert said == tokenizer.detokenize(tokens[5 + len(end) :]) != ""
    last = talk.messages[-1]
    assert (last["content"], last["reasoning_content"]) == (said, thought)
    again = Conversation.text(thoughtful, [*talk.messages, {"role": "user", "content": "Again!"}])
    assert f"assistant:<think>{thought}</think>{said}\n" in again


SAID, THOUGHT = "content", "reasoning_content"
OF_THE_SERVER = {
    "no limit": ({}, {SAID: "", THOUGHT: ", and let us speak\nThe causes of the people"}),
    "6 tokens": ({"budget": 6}, {SAID: ", and I", THOUGHT: ", and let us speak\n"}),
    "none": ({"budget": 0}, {SAID: "\nTheir further.\n\nLEONTES:\n"}),
    "message": (
        {"budget": 6, "budget_message": " Stop."},
        {SAID: "", THOUGHT: ", and let us speak\n Stop."},  # the tag's end was not reached
    ),
    "in the text": (
        {"budget": 3, "thoughts": False}, {SAID: "<think>, and let</think>\nTheir further"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("how,expected", OF_THE_SERVER.values(), ids=OF_THE_SERVER)
def test_thoughts_are_those_of_llama_server(
    thoughtful: llama_py.Model, how: dict[str, Any], expected: dict[str, str]
) -> None:
    """Recorded: the demo model, THINKER, --reasoning-budget, max_tokens 14, temperature 0."""
    talk = Conversation(thoughtful.context(256), **how)
    shown = [(p.reasoning, p.text) for p in talk.ask("Hi", max_tokens=14)]
    assert talk.messages[-1] == {"role": "assistant", **expected}
    thought, said = ("".join(texts) for texts in zip(*shown, strict=True))
    assert (thought, said) == (expected.get(THOUGHT, ""), expected[SAID])


def test_thoughts_may_be_left_in_the_text_or_out_altogether(thoughtful: llama_py.Model) -> None:
    talk = Conversation(thoughtful.context(256), budget=0, thoughts=False)
    assert text(talk.ask("Speak!", max_tokens=12)).startswith("<think></think>")
    assert "reasoning_content" not in talk.messages[-1]
    quiet = Conversation(thoughtful.context(256), variables={"enable_thinking": False})
    quiet.add_user_message("Speak!")
    assert quiet._chat is not None and quiet._chat.text.endswith("assistant:")
    assert thoughtful.chat("Speak!", max_tokens=3, temp=0) == ""  # it was still thinking
