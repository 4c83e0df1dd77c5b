"""Conversations that are changed: answered again, gone on with, ended where the template says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import llama_py
from ggml_py.errors import ContextError, ModelError
from llama_py import Conversation
from llama_py.chat import ChatTemplate
from llama_py.chat.ends import turn_end
from llama_py.chat.named import template_source
from tests.support.commands import DEMO

LONG = "Speak of love and of the king! " * 10


def text(pieces: Iterator[llama_py.Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def fresh(model: llama_py.Model, messages: Any, n: int) -> str:
    ids = Conversation.prompt(model, messages)
    return text(llama_py.stream(model.context(512), ids, max_tokens=n, stop=["\n\n"]))


def test_the_last_message_is_answered_again(model: llama_py.Model) -> None:
    """Of a state that cannot go back only the last token is computed again."""
    talk = Conversation(model.context(512), "Be brief.")
    first = text(talk.ask(LONG, max_tokens=4))
    before = list(talk.messages)
    ids = talk.regenerate()
    assert len(ids) == 1
    assert text(talk.answer(ids, max_tokens=4)) == first and talk.messages == before


def test_another_message_in_its_place(model: llama_py.Model) -> None:
    """What comes before it is not computed again."""
    talk = Conversation(model.context(512), LONG)
    text(talk.ask("Who is there?", max_tokens=4))
    text(talk.ask("And why?", max_tokens=4))
    n_before = len(Conversation.prompt(model, talk.messages[:3]))
    ids = talk.regenerate("And when?")
    assert talk.prefix.last_match is not None and talk.prefix.last_match.n_reused >= n_before - 10
    answer = text(talk.answer(ids, max_tokens=4))
    asked = [m["content"] for m in talk.messages if m["role"] == "user"]
    assert asked == ["Who is there?", "And when?"]
    assert answer == fresh(model, talk.messages[:-1], 4)


def test_what_cannot_be_answered_again_changes_nothing(model: llama_py.Model) -> None:
    talk = Conversation(model.context(256))
    with pytest.raises(ContextError, match="no message to respond to again"):
        talk.regenerate()
    text(talk.ask("Speak!", max_tokens=2))
    before = list(talk.messages)
    with pytest.raises(ContextError, match="use a larger"):
        talk.regenerate(LONG * 5)
    assert talk.messages == before


def test_a_cut_answer_is_taken_back_too(model: llama_py.Model) -> None:
    talk = Conversation(model.context(256))
    next(talk.ask("Speak!", max_tokens=9))
    talk.regenerate()
    assert talk.messages == [{"role": "user", "content": "Speak!"}]


def test_messages_of_another_day(model: llama_py.Model) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Speak!"},
        {"role": "assistant", "content": "Ay."},
    ]
    talk = Conversation(model.context(256), "Be long.")
    text(talk.ask("Who?", max_tokens=2))
    talk.resume(messages)
    assert talk.system == "Be brief." and talk.messages == messages
    said = text(talk.ask("Again!", max_tokens=4))
    assert said == fresh(model, [*messages, {"role": "user", "content": "Again!"}], 4)
    talk.clear()
    assert talk.messages == messages[:1]


def test_what_the_system_says_may_change(model: llama_py.Model) -> None:
    talk = Conversation(model.context(256))
    text(talk.ask("Speak!", max_tokens=2))
    talk.system = "Be brief."
    talk.system = "Be long."
    assert [m["role"] for m in talk.messages] == ["system", "user", "assistant"]
    assert talk.messages[0]["content"] == talk.system == "Be long."
    talk.system = ""
    assert [m["role"] for m in talk.messages] == ["user", "assistant"]


ENDS = {
    "demo": (None, "\n\n"),
    "plain": (
        template_source("vicuna").replace("eos_token", "'!'").replace("</s>", "!"),
        "!\nUSER: ",
    ),
    "special": ("{% for m in messages %}{{ m.content }}<|endoftext|>\n{% endfor %}", ""),
    "nothing": ("{% for m in messages %}{{ m.content }}{% endfor %}", ""),
    "one message": ("{{ messages[0].content }}", ""),
    "refuses": ("{{ raise_exception('no') if messages[1:] }}", ""),
}


@pytest.mark.parametrize(("source", "end"), ENDS.values(), ids=ENDS)
def test_where_an_answer_ends(model: llama_py.Model, source: str | None, end: str) -> None:
    template = model.chat_template if source is None else ChatTemplate(source)
    assert template is not None and turn_end(template, model.tokenizer) == end


def test_the_text_that_ends_an_answer_is_no_part_of_it(model: llama_py.Model) -> None:
    talk = Conversation(model.context(512))
    (*_, last) = talk.ask("Who is there?", max_tokens=200)
    assert last.finish_reason == "stop"
    said = talk.messages[-1]["content"]
    assert said.strip() and "\n\n" not in said
    held = len(talk.prefix.tokens)
    talk.add_user_message("Why?")
    assert talk.prefix.last_match is not None and talk.prefix.last_match.n_same >= held - 1


def test_a_wrong_stop_is_told(model: llama_py.Model) -> None:
    talk = Conversation(model.context(256))
    with pytest.raises(ModelError, match="stop must be a list of non-empty strings"):
        text(talk.ask("Speak!", stop=""))


def test_the_demo_is_not_changed_but_for_its_template() -> None:
    assert str(llama_py.load(DEMO, "null").tokenizer.chat_template).startswith("{%- for m")


def test_a_message_whose_answer_failed_leaves(
    model: llama_py.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be said once more. What was answered before an error stays."""
    ctx = model.context(512)
    talk = Conversation(ctx, "Be brief.")
    first = text(talk.ask("Who is there?", max_tokens=4))
    before, decode = list(talk.messages), ctx.decode
    n_left = [0]

    def fail(*args: Any, **more: Any) -> Any:
        n_left[0] -= 1
        if n_left[0] < 0:
            raise ContextError("no room")
        return decode(*args, **more)

    monkeypatch.setattr(ctx, "decode", fail)
    with pytest.raises(ContextError, match="no room"):
        text(talk.ask("And why?", max_tokens=4))
    assert talk.messages == before
    n_left[0] = 0
    with pytest.raises(ContextError, match="no room"):
        text(talk.answer(talk.regenerate("And when?"), max_tokens=4))
    assert talk.messages == before
    monkeypatch.undo()
    answer = text(talk.ask("And why?", max_tokens=4))
    assert answer == fresh(model, talk.messages[:-1], 4) and first in talk.messages[2]["content"]
