"""Texts by turns, and messages of several lines."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import llama_py
from llama_py_tools.command.chat_params import ChatParams
from llama_py_tools.generate import cli
from llama_py_tools.generate.interactive import message

QUICK = ["-dev", "ref", "-c", "256", "--temp", "0", "-no-cnv"]


def lines(*given: str) -> Any:
    found: Iterator[str] = iter(given)
    return lambda: next(found, None)


def test_messages_of_several_lines() -> None:
    read = lines("a", "b\\", "c\\", "d", "e\\")
    assert [message(read, False) for _ in range(4)] == ["a", "b\nc\nd", "e", None]
    read = lines("a", "b", "c\\", "d\\", "e")
    assert [message(read, True) for _ in range(4)] == ["a\nb\nc", "d", "e", None]


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the model had before it each time."""
    given: list[str] = []
    stream = llama_py.stream
    tokenizer = llama_py.load(device="null").tokenizer

    def note(ctx: Any, ids: list[int], **how: Any) -> Any:
        given.append(tokenizer.detokenize([*how["before"], *ids]))
        return stream(ctx, ids, **how)

    monkeypatch.setattr(llama_py, "stream", note)
    return given


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, *argv: str
) -> str:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert cli.main([*QUICK, *argv]) == 0
    return capsys.readouterr().out


def test_turns(
    texts: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    how = ["-p", "ROMEO:", "-n", "3", "-i", "--in-prefix", "\\nU: ", "--in-suffix", "\\nR:"]
    shown = run(monkeypatch, capsys, "Go\\tup\\\non\n\n", *how)
    first, second, third = texts
    assert first == "ROMEO:"
    assert second.startswith(first) and second.endswith("\nU: Go\tup\non\nR:")
    assert third.startswith(second) and len(third) > len(second)
    assert shown.startswith(first) and shown.count("\nU: ") == 3 and shown.count("\nR:") == 1
    answered = second.removesuffix("\nU: Go\tup\non\nR:")
    assert shown.startswith(answered)


def test_the_user_first(
    texts: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = run(monkeypatch, capsys, " O\n", "-p", "ROMEO:", "-n", "2", "-if")
    assert texts == ["ROMEO: O"]
    assert shown.startswith("ROMEO:")


def test_a_reverse_prompt_is_shown(
    texts: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = run(monkeypatch, capsys, "", "-p", "ROMEO:", "-n", "12", "-i").rstrip("\n")
    stop = whole.split()[-2]
    shown = run(monkeypatch, capsys, "X\n", "-p", "ROMEO:", "-n", "12", "-i", "-r", stop)
    assert shown.startswith(whole[: whole.index(stop) + len(stop)])
    assert re.search(re.escape(stop) + "X$", texts[-1])


def test_templates_are_left_out(
    texts: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    args = ["-dev", "ref", "--chat-template", "chatml", "-p", "A", "-n", "1"]
    for more in (["-i"], ["--in-prefix", "x"]):
        assert cli.main([*args, *more]) == 0
    assert texts == ["A", "A"]
    with pytest.raises(SystemExit):
        cli.main(["-i", "--prompt-cache", "x"])


def test_thoughts_in_the_answer() -> None:
    chat = cli.with_system(ChatParams(skip_chat_parsing=True))
    assert chat.reasoning_format == "none"


def test_messages_of_a_conversation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    add = llama_py.Conversation.add_user_message
    monkeypatch.setattr(
        llama_py.Conversation,
        "add_user_message",
        lambda self, text, *images: told.append(text) or add(self, text, *images),
    )
    args = ["-dev", "ref", "--chat-template", "{{ messages[-1].content }}", "-n", "1", "-cnv"]
    for typed, more in (("a\\\nb\n", []), ("a\nb\\\nc\\\n", ["-mli"])):
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        assert cli.main([*args, *more]) == 0
    assert told == ["a\nb", "a\nb", "c"]
