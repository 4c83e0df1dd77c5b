"""What begins with a slash, in this process and line by line."""

from __future__ import annotations

import io
import json
import math
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import llama_py
from ggml_py.errors import ModelError
from llama_py.params import GenerateParams, SamplingParams
from llama_py_tools.command import logs
from llama_py_tools.command.chat_params import ChatParams
from llama_py_tools.command.logs import CommonParams
from llama_py_tools.generate import cli
from llama_py_tools.generate.chat import Talk, commands, history, lines, saved, settings, terminal
from tests.support.commands import DEMO

HOW = ["-cnv", "-c", "512", "-n", "4", "-s", "5"]


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """What is said on stdout and stderr of lines on stdin."""

    def run(*typed: str, how: list[str] | None = None) -> tuple[str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(typed) + "\n"))
        assert cli.main(HOW if how is None else how) == 0
        return capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def context() -> Iterator[llama_py.Context]:
    with llama_py.load(device="null") as model:
        yield model.context(256)


@pytest.fixture
def talk(context: llama_py.Context) -> Talk:
    """In which one message was said."""
    logs.set_up(CommonParams())
    model: Any = context.model
    sampler = llama_py.Sampler(SamplingParams(temp=0.5), model.hparams.n_vocab, model.tokenizer)
    run: Any = SimpleNamespace(
        model=model,
        ctx=context,
        sampler=sampler,
        params=GenerateParams(sampler=sampler, max_tokens=7),
    )
    talk = Talk(run, ChatParams())
    talk.conversation.messages.append(HELLO)
    return talk


def messages(path: Path) -> list[tuple[str, str]]:
    return [(m["role"], m["content"]) for m in json.loads(path.read_text())["messages"]]


def test_every_command_has_a_line_of_help(chat: Any) -> None:
    told = chat("/help").err
    assert all(f"\n{name}" in f"\n{told}" for name in commands.COMMANDS)
    assert all(f.__doc__ and "\n" not in f.__doc__ for f in commands.COMMANDS.values())


@pytest.mark.parametrize("name", commands.ALIASES)
def test_names_in_other_chat_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setitem(commands.COMMANDS, commands.ALIASES[name], lambda *what: done.append(what))
    talk: Any = object()
    split = commands.split(f"{name} text")
    assert split is not None
    commands.obey(talk, *split)
    assert done == [(talk, "text")]
    assert commands.split(f"{name}/bin") is None


@pytest.mark.parametrize("word", ["/exit", "/bye", "/quit"])
def test_words_that_end_a_chat(chat: Any, word: str) -> None:
    shown = chat(word, "Speak!")
    assert shown.out == "" and shown.err.endswith("stop: end of input\n")


REFUSED = [
    ("/hlep", "unknown command /hlep; did you mean /help?"),
    ("/xyzzy", "unknown command /xyzzy; /help lists all"),
    ("/image cat.png", "no vision encoder is loaded; start the chat with --mmproj FILE"),
    ("/read", "file name is missing; use /read FILE"),
    ("/read no such file", "no such file: No such file or directory; check the path"),
    ("/regen", "the conversation has no message to respond to again; send one first"),
    ("/edit x", "the conversation has no message to edit; send one first"),
    ("/set tmep 1", "unknown setting 'tmep'; did you mean temp"),
    ("/set top-p 2", "top-p: must be a number in [0, 1], got 2"),
    ("/set seed x", "seed: "),
    ("/set ignore-eos perhaps", "ignore-eos: "),
]  # fmt: skip


def test_what_cannot_be_done_is_one_line(chat: Any) -> None:
    """The conversation goes on."""
    shown = chat(*(line for line, _ in REFUSED), "Speak!")
    told = [one for one in shown.err.splitlines() if one.startswith("error: ")]
    for one, (_, error) in zip(told, REFUSED, strict=True):
        assert one.removeprefix("error: ").startswith(error)
    assert shown.out.strip()


def test_what_is_told_is_not_put_into_flags(chat: Any) -> None:
    """Names of samplers, and what a user wrote, are no names of options."""
    told = chat("/set", "/system Say top_k and n_ctx = 5.", "/system").err
    assert "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature" in told
    assert "Say top_k and n_ctx = 5." in told


def test_a_message_may_begin_with_a_slash(chat: Any, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    chat("/usr/bin is what?", " /help", '"""/clear"""', f"/save {file}")
    said = [text for role, text in messages(file) if role == "user"]
    assert said == ["/usr/bin is what?", "/help", "/clear"]


def test_several_lines(chat: Any, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    chat("one\\", "two", '"""', "three", " four", '"""', '"""five', 'six"""', f"/save {file}")
    said = [text for role, text in messages(file) if role == "user"]
    assert said == ["one\ntwo", "three\n four", "five\nsix"]


def test_other_rules_for_several_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo/\nthree"))
    source = lines.StdinLines(lambda text: not text.endswith("/"))
    assert [source.read(), source.read(), source.read()] == ["one\ntwo/", "three", None]


class Typed:
    """What comes of keys; None is Ctrl-C at an empty prompt, a text that begins with ^C clears."""

    def __init__(self, *keys: str | None) -> None:
        self.keys = list(keys)
        self.defaults: list[str] = []

    def read(self, default: str = "") -> str | None:
        self.defaults.append(default)
        key = self.keys.pop(0)
        if key is None:
            raise KeyboardInterrupt
        if key.startswith("^C"):
            raise KeyboardInterrupt(key)
        return key


def test_ctrl_c_at_the_prompt() -> None:
    """It clears the line; the next one, with nothing typed in between, is the end."""
    for keys in (("^C", None), (None, None), ("^C", "^C", "^C", None)):
        assert lines.PromptSource(Typed(*keys)).read() is None
    source = Typed(None, "^C", "Speak!", None, "Again!")
    both = lines.PromptSource(source)
    assert [both.read("x"), both.read()] == ["Speak!", "Again!"]
    assert source.defaults == ["x", "", "", "", ""]


def test_an_edit_that_is_given_up(talk: Talk) -> None:
    source = Typed(None, "")
    talk.source = lines.PromptSource(source)
    for _ in range(2):
        talk.take("/edit")
    assert source.defaults == ["x", "x"] and talk.conversation.messages == [HELLO]


def test_another_answer_to_the_same(chat: Any, tmp_path: Path) -> None:
    """It is drawn anew, takes the place of the first, and almost nothing is computed again."""
    files = [tmp_path / f"{i}.json" for i in range(3)]
    long = "Speak of love and of the king! " * 12
    shown = chat(
        "/system Be brief.",
        long,
        f"/save {files[0]}",
        "/regen",
        f"/save {files[1]}",
        f"/edit {long}Speak!",
        f"/save {files[2]}",
    )
    first, again, edited = map(messages, files)
    assert first[:2] == again[:2] == [("system", "Be brief."), ("user", long.strip())]
    assert len(first) == len(again) == len(edited) == 3 and first[2] != again[2]
    assert edited[1] == ("user", f"{long}Speak!")
    found = re.search(r"\nprompt (\d+) tokens \((\d+) reused", shown.err)
    n_whole = len(llama_py.load_tokenizer(DEMO).tokenize(long))
    assert found and int(found[2]) > n_whole  # of the second answer all, of the third the start


def test_settings(chat: Any, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    told = chat(
        "/set temp 0",
        "/set -n 2",
        "/set reverse-prompt \\n\\n",
        "/set logit_bias 5-1.5",
        "/set ignore-eos on",
        "Speak!",
        "/set",
        f"/save {file}",
    ).err
    now = json.loads(file.read_text())["settings"]
    assert now == {
        "temp": 0.0,
        "max_tokens": 2,
        "stop": ["\n\n"],
        "logit_bias": [[5, -1.5]],
        "ignore_eos": True,
        "seed": 5,
    }
    assert "* temperature" in told and "  top-p" in told and "generated 2 tokens" in told


def test_a_conversation_goes_on(chat: Any, tmp_path: Path) -> None:
    """As if it had never ended: the same messages, settings and greedy answers."""
    file, after, whole = (tmp_path / name for name in ("a.json", "b.json", "c.json"))
    start = ["/set temp 0", "/system Be brief.", "Speak!", f"/save {file}"]
    chat(*start, "Again!", f"/save {whole}")
    chat(f"/load {file}", "Again!", f"/save {after}")
    assert messages(after) == messages(whole) and len(messages(whole)) == 5
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert saved.load(file)[1] == {"temp": 0.0, "seed": 5, "max_tokens": 4}


GOOD = {"kind": saved.KIND, "version": 1, "model": "m", "messages": [], "settings": {}}
HELLO = {"role": "user", "content": "x"}
CALLED = {"role": "assistant", "content": None}
HOSTILE: list[tuple[Any, str]] = [
    (b"", "is not a conversation: Expecting value"),
    (b"\xff\xfe\0", "is not a conversation"),
    (b"[" * 100_000, "is not a conversation"),
    ([], "is not a conversation saved by /save"),
    ({**GOOD, "version": 2}, "must have version 1, got 2"),
    ({**GOOD, "messages": {}}, "messages must be a list"),
    ({**GOOD, "messages": [{"role": "user"}]}, "message 0 must have role and content"),
    ({**GOOD, "messages": [{**HELLO, "tool_calls": []}]}, "message 0 must have role and content"),
    ({**GOOD, "messages": [{**CALLED, "tool_calls": {}}]}, "message 0 must have string content"),
    ({**GOOD, "messages": [{**CALLED, "tool_calls": [7]}]}, "message 0 must have string content"),
    ({**GOOD, "messages": [{**CALLED, "tool_calls": [{"function": {"name": 1}}]}]}, "string"),
    ({**GOOD, "messages": [{**CALLED, "tool_call_id": "1"}]}, "keys of its role only"),
    ({**GOOD, "messages": [{**HELLO, "content": 3}]}, "message 0 must have string content"),
    ({**GOOD, "messages": [{**HELLO, "content": "\ud800"}]}, "message 0 must have string content"),
    ({**GOOD, "messages": [HELLO, {**HELLO, "role": "system"}]}, "message 1 has role 'system'"),
    ({**GOOD, "messages": [{**HELLO, "role": ["user"]}]}, "message 0 has role ['user']"),
    ({**GOOD, "settings": []}, "settings must be an object of names and values"),
    ({**GOOD, "settings": {"sampler": 1}}, "unknown setting 'sampler'"),
    ({**GOOD, "settings": {"temp": "hot"}}, "temp must be a finite number, got 'hot'"),
    ({**GOOD, "settings": {"top_p": math.inf}}, "Infinity is not a number"),
    (json.dumps({**GOOD, "settings": {"top_p": 7}}).replace("7", "1e999").encode(), ", got inf"),
    ({**GOOD, "settings": {"seed": True}}, "seed must be an integer"),
    ({**GOOD, "settings": {"stop": "x"}}, "stop must be a list of strings"),
    ({**GOOD, "settings": {"logit_bias": {"5": 1}}}, "logit_bias must be a list of pairs"),
    ({**GOOD, "settings": {"logit_bias": [[1 << 40, 1.0]]}}, "token must be in the vocabulary"),
    ({**GOOD, "settings": {"samplers": "fire"}}, "samplers must be a list of"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "error"), HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_files_are_refused(
    data: Any, error: str, talk: Talk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one line; what was there stays."""
    file = tmp_path / "hostile.json"
    file.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    before = list(talk.conversation.messages), settings.values(talk.run)
    assert len(before[0]) == 1
    talk.take(f"/load {file}")
    assert (talk.conversation.messages, settings.values(talk.run)) == before
    line = capsys.readouterr().err
    assert line.startswith("error: ") and error in line and line.count("\n") == 1


def test_a_conversation_that_the_template_refuses(
    talk: Talk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "talk.json"
    answer = {"role": "assistant", "content": "Hello."}
    file.write_text(json.dumps({**GOOD, "messages": [HELLO, answer]}))
    model, usual = talk.run.model, talk.run.model.chat_template
    model.set_chat_template("{{ raise_exception('no two') if messages[1:] else 'x' }}")
    talk.take(f"/load {file}")
    model.chat_template = usual
    assert "no two" in capsys.readouterr().err and len(talk.conversation.messages) == 1


def test_too_large_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "MAX_BYTES", 10)
    file = tmp_path / "large.json"
    file.write_text(json.dumps(GOOD))
    with pytest.raises(ModelError, match="must have at most"):
        saved.load(file)
    kept = file.read_bytes()
    with pytest.raises(ModelError, match="so it is not saved"):  # as it could not be read again
        saved.save(file, "m", [HELLO], {})
    assert file.read_bytes() == kept


def test_typed_lines_are_kept_for_their_user_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "data" / "chat_history"
    monkeypatch.setattr(history, "path", lambda: file)
    assert history.open_history() == file
    assert [stat.S_IMODE(f.stat().st_mode) for f in (file, file.parent)] == [0o600, 0o700]
    monkeypatch.setattr(history, "MAX_BYTES", 60)
    file.write_text("".join(f"\n# 2026\n+line {i}\n" for i in range(9)))
    history.open_history()
    assert file.read_text() == "\n# 2026\n+line 8\n"
    kept = terminal._HistoryFile(str(file))
    kept.store_string("no UTF-8: \udcff")
    assert next(iter(kept.load_history_strings())) == "no UTF-8: ?"
    terminal._HistoryFile(str(file / "below a file")).store_string("said")  # is not kept
    monkeypatch.setattr(history, "path", lambda: file / "below a file")
    assert history.open_history() is None
