"""llama-py-cli in this process: prompts, stop strings, chat."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import llama_py
from llama_py.context import Context
from llama_py.decoding.prefix_cache import PrefixCache
from llama_py.params import GenerateParams
from llama_py_tools.command.chat_params import ChatParams
from llama_py_tools.generate import cli
from llama_py_tools.generate.chat import Talk
from tests.support.commands import DEMO, demo_with_template, tiny_model

QUICK = ["-dev", "ref", "-c", "256", "--temp", "0"]
TEMPLATE = (
    "{% for m in messages %}{{ 'ROMEO' if m.role == 'assistant' else m.role }}:{{ m.content }}\n"
    "{% endfor %}{% if add_generation_prompt %}ROMEO:{% endif %}"
)


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(demo_with_template(tmp_path_factory.mktemp("chat"), TEMPLATE))


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What each prompt, of more than one token, was computed of, as text."""
    given: list[str] = []
    tokenizer = llama_py.load(DEMO, "null").tokenizer
    decode = PrefixCache.decode

    def note(self: PrefixCache, ids: list[int], seq_id: int = 0) -> object:
        if len(ids) > 1:
            given.append(tokenizer.detokenize(ids))
        return decode(self, ids, seq_id)

    monkeypatch.setattr(PrefixCache, "decode", note)
    return given


def test_escapes_can_be_turned_off(prompts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*QUICK, "-n", "0", "-p", r"O\nO O"]) == 0
    assert cli.main([*QUICK, "-n", "0", "-p", r"O\nO O", "--no-escape"]) == 0
    assert prompts == ["O\nO O", r"O\nO O"]
    assert capsys.readouterr().out == "O\nO O\nO\\nO O\n"


def test_stop_strings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*QUICK, "-n", "12"]) == 0
    whole = capsys.readouterr().out.rstrip("\n")
    stop = whole.split()[-1]
    assert cli.main([*QUICK, "-n", "12", "-r", "never", "-r", stop]) == 0
    shown = capsys.readouterr()
    assert shown.out.rstrip("\n") == whole[: whole.index(stop)].rstrip("\n")
    assert shown.err.endswith("stop: stop\n")


def test_ignore_eos_forbids_every_end(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    stream = llama_py.stream
    eog = [*llama_py.load(DEMO, "null").tokenizer.eog]
    assert eog

    def note(ctx: Context, ids: list[int], **how: Any) -> object:
        logits = np.zeros(how["sampler"].n_vocab, np.float32)
        logits[eog] = 9
        seen.append(how["sampler"].sample(logits))
        return stream(ctx, ids, **how)

    monkeypatch.setattr(llama_py, "stream", note)
    assert cli.main([*QUICK, "-n", "1", "-l", "5+1"]) == 0
    assert cli.main([*QUICK, "-n", "1", "--ignore-eos", "-l", "5+1"]) == 0
    assert seen == [eog[0], 5]


def test_the_seed_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = [*QUICK, "-n", "1", "--temp", "1"]
    assert cli.main([*drawn, "-s", "77"]) == 0
    assert " | seed 77\n" in capsys.readouterr().err
    assert cli.main(drawn) == 0
    first = re.search(r" \| seed (\d+)\n", capsys.readouterr().err)
    assert cli.main([*QUICK, "-n", "1"]) == 0
    assert "seed" not in capsys.readouterr().err
    assert cli.main(drawn) == 0
    assert first and f"seed {first[1]}\n" not in capsys.readouterr().err


def test_a_model_without_vocabulary_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, none = str(tiny_model(tmp_path)), ["--override-kv", "tokenizer.ggml.model=str:none"]
    assert cli.main(["-m", path, "-dev", "ref", *none, "-p", "hello"]) == 1
    assert capsys.readouterr().err.startswith("error: this model file has no vocabulary")
    assert cli.main(["-m", path, "-dev", "ref", *none]) == 1
    assert "no BOS token; use -p TEXT" in capsys.readouterr().err


def test_prompt_and_file_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["-p", "a", "-f", "b"])
    assert caught.value.code == 2
    assert "set only one of -p, -f and -bf" in capsys.readouterr().err


def test_a_conversation(
    chat_model: str,
    prompts: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = "Speak!\n\nAgain!\n/clear\nOnce more!\n/exit\nnever\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert cli.main([*QUICK, "-m", chat_model, "-cnv", "-sys", "Be brief.", "-n", "2"]) == 0
    shown = capsys.readouterr()
    answers = shown.out.splitlines()
    start = "system:Be brief.\nuser:"
    assert prompts[0] == f"{start}Speak!\nROMEO:"
    told = f"{prompts[0]}{answers[0]}\nuser:Again!\nROMEO:"
    assert told.endswith(prompts[1])  # the memory has the rest, but for the answer's last token
    assert len(prompts[0]) < len(told) - len(prompts[1]) < len(prompts[0] + answers[0])
    assert prompts[2:] == ["Once more!\nROMEO:"]  # what comes before it was kept
    assert len(answers) == 3
    assert " reused), " in shown.err and " MiB of checkpoints\n" in shown.err
    assert "| generated 6 tokens" in shown.err


def test_one_turn(chat_model: str, prompts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("not read\n"))
    assert cli.main([*QUICK, "-m", chat_model, "-st", "-p", "Speak!", "-n", "2"]) == 0
    assert prompts == ["user:Speak!\nROMEO:"]
    monkeypatch.setattr("sys.stdin", None)
    assert cli.main([*QUICK, "-m", chat_model, "-cnv", "-n", "2"]) == 0
    assert len(prompts) == 1


def interrupted_run(model: str) -> Any:
    """A run that Ctrl-C ends at the first piece of an answer."""
    loaded = llama_py.load(model, "ref")

    def show(pieces: Iterator[llama_py.Piece], n_tokens: int) -> None:
        next(pieces)
        raise KeyboardInterrupt

    return SimpleNamespace(
        model=loaded,
        ctx=loaded.context(256),
        params=GenerateParams(),
        show=show,
        summary=SimpleNamespace(pending=(1, 0.0)),
        end_line=lambda: None,
        note_reuse=lambda _: None,
    )


def test_ctrl_c_on_a_terminal_ends_the_answer_only(chat_model: str) -> None:
    run = interrupted_run(chat_model)
    with pytest.raises(KeyboardInterrupt):
        Talk(run, ChatParams()).turn("a")
    run.ctx.clear()
    talk = Talk(run, ChatParams())
    talk.terminal = True
    talk.turn("a")
    conversation, tokenizer = talk.conversation, run.model.tokenizer
    assert tokenizer.detokenize(conversation.prefix.tokens) == "user:a\nROMEO:"  # was computed
    assert conversation.messages[-1]["role"] == "assistant"
    assert len(tokenizer.tokenize(conversation.messages[-1]["content"])) == 1
    assert run.summary.pending is None


def test_a_model_with_a_template_talks(
    chat_model: str,
    prompts: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As llama-completion: -p is the first message, and stdin has the others; -no-cnv: a text."""
    monkeypatch.setattr("sys.stdin", io.StringIO("Again!\n"))
    assert cli.main([*QUICK, "-m", chat_model, "-p", "Speak!", "-n", "2"]) == 0
    assert prompts[0] == "user:Speak!\nROMEO:" and prompts[1].endswith("user:Again!\nROMEO:")
    prompts.clear()
    capsys.readouterr()
    assert cli.main([*QUICK, "-m", chat_model, "-p", "Speak!", "-n", "2", "-no-cnv"]) == 0
    assert prompts == ["Speak!"] and capsys.readouterr().out.startswith("Speak!")


def test_a_model_without_a_template_completes_unless_asked_to_talk(
    tmp_path: Path,
    prompts: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    plain = ["-m", str(demo_with_template(tmp_path, None))]
    assert cli.main([*QUICK, *plain, "-p", "Speak!", "-n", "2"]) == 0
    assert cli.main([*QUICK, *plain, "-p", "Speak!", "-n", "2", "-cnv"]) == 0
    chatml = "<|im_start|>user\nSpeak!<|im_end|>\n<|im_start|>assistant\n"
    assert prompts == ["Speak!", chatml]
    assert "the model has no chat template; chatml is used" in capsys.readouterr().err


def test_the_demo_completes_unless_asked_to_talk(
    prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It talks where it is just started on a terminal, too."""
    monkeypatch.setattr("sys.stdin", io.StringIO("Again!\n"))
    for how in ([], ["-p", "Speak!"], ["-cnv", "-p", "Speak!"]):
        assert cli.main([*QUICK, *how, "-n", "2"]) == 0
    assert prompts[:3] == ["ROMEO:", "Speak!", "Speak!\n\nJULIET:\n"]
    assert prompts[3].endswith("Again!\n\nJULIET:\n")
    monkeypatch.setattr("sys.stdin", Screen("Who is there?\n"))
    assert cli.main([*QUICK, "-n", "2"]) == 0
    assert prompts[4] == "Who is there?\n\nJULIET:\n"


TEMPLATES = {
    "name": (["--chat-template", "zephyr"], "<|user|>\nHi\n<|assistant|>\n"),
    "text": (["--chat-template", "{{ messages[0].content }}?", "--jinja"], "Hi?"),
    "variables": (
        ["--chat-template", "{{ a }}{{ b }}{{ enable_thinking }}{{ clear_thinking }}",
         "--chat-template-kwargs", '{"a": 1}', "--chat-template-kwargs", '{"b": "x"}',
         "--reasoning", "off", "--no-reasoning-preserve"],
        "1xFalseTrue",
    ),
    "effort": (
        ["--chat-template", "{{ reasoning_effort }}{{ enable_thinking }}",
         "--reasoning-effort", "low", "-rea", "on"],
        "lowTrue",
    ),
}  # fmt: skip


@pytest.mark.parametrize("flags,prompt", TEMPLATES.values(), ids=TEMPLATES)
def test_another_template(flags: list[str], prompt: str, prompts: list[str]) -> None:
    assert cli.main([*QUICK, "-st", "-p", "Hi", "-n", "1", *flags]) == 0
    assert prompts == [prompt]


def test_a_budget_of_thoughts_that_there_are_none_of(capsys: pytest.CaptureFixture[str]) -> None:
    how = ["--chat-template", "zephyr", "-st", "-p", "Hi", "-n", "1", "--reasoning-budget", "3"]
    assert cli.main([*QUICK, *how]) == 0
    assert "--reasoning-budget has no effect" in capsys.readouterr().err


def test_a_template_in_a_file(tmp_path: Path, prompts: list[str]) -> None:
    file = tmp_path / "a.jinja"
    file.write_text("[{{ messages[0].content }}]")
    how = ["-st", "-p", "Hi", "-n", "1", "--chat-template-file", str(file)]
    assert cli.main([*QUICK, *how]) == 0
    assert prompts == ["[Hi]"]
    with pytest.raises(SystemExit):
        cli.main([*QUICK, *how, "--chat-template", "zephyr"])


def test_wrong_templates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*QUICK, "-st", "--chat-template", "gpt"]) == 1
    assert "unknown chat template 'gpt'; did you mean gpt-oss?" in capsys.readouterr().err
    bad = str(demo_with_template(tmp_path, "{% if %}"))
    assert cli.main([*QUICK, "-m", bad, "-p", "Hi"]) == 1
    err = capsys.readouterr().err
    assert "template cannot be used" in err and "error: chat template, line 1" in err
    assert cli.main([*QUICK, "-m", bad, "-p", "Hi", "-n", "1", "-no-cnv"]) == 0
    with pytest.raises(SystemExit):
        cli.main([*QUICK, "--chat-template-kwargs", "[1]"])
    assert "expected a JSON object" in capsys.readouterr().err


THINKER = (
    "{% for m in messages %}{{ m.role }}:{% if m.reasoning_content %}<think>"
    "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:<think>{% endif %}"
)
THINK = ["-c", "256", "--temp", "0", "-st", "-p", "Hi", "-n", "14", "--reasoning-budget", "3"]


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("how", ["hidden", "dim", "NO_COLOR", "none"])
def test_thoughts_are_shown_on_a_terminal_only(
    how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Screen()
    if how in ("dim", "NO_COLOR"):
        monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("NO_COLOR", "1" if how == "NO_COLOR" else "")
    more = ["--reasoning-format", "none"] if how == "none" else []
    assert cli.main(["--chat-template", THINKER, *THINK, *more]) == 0
    out = screen.getvalue() or capsys.readouterr().out
    tokens = greedy("user:Hi\nassistant:<think>", 3)
    if how == "none":
        assert out.startswith(f"<think>{tokens}</think>")
        return
    said = out.rpartition("\n\n" if how != "hidden" else "\0")[2]
    assert said.strip() and "think>" not in said
    shown = {
        "hidden": "",
        "dim": f"\x1b[2m{tokens.lstrip()}\x1b[0m\n\n",
        "NO_COLOR": f"[Start thinking]\n{tokens.lstrip()}\n[End thinking]\n\n",
    }
    assert out == shown[how] + said


def greedy(prompt: str, n: int) -> str:
    with llama_py.load(DEMO) as model:
        return model.generate(prompt, max_tokens=n, temp=0)


def test_it_is_told_when_the_context_is_full(
    chat_model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    question = "Speak " * 60 + "!"
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{question}\n" * 4))
    small = ["-m", chat_model, "-c", "256", "--temp", "0"]
    assert cli.main([*small, "-sys", "Be brief.", "-n", "2"]) == 0
    told = capsys.readouterr()
    assert told.err.count("(the context is full: the 2 oldest messages were removed)") == 3
    assert len(told.out.splitlines()) >= 4
    assert cli.main([*small, "--ignore-eos", "-st", "-p", question]) == 0
    assert "(the context is full: use a larger -c N to continue)" in capsys.readouterr().err


def test_filling_in_needs_a_model_that_can(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-dev", "ref", "--fim-prefix", "a", "--fim-suffix", "b", "-n", "1"]) == 1
    assert "cannot fill in" in capsys.readouterr().err


def test_filling_in(capsys: pytest.CaptureFixture[str]) -> None:
    ids = (f"tokenizer.ggml.fim_{name}_token_id=int:{256 + i}" for i, name in enumerate(FIM))
    named = [word for text in ids for word in ("--override-kv", text)]
    args = ["-dev", "ref", *named, "--fim-prefix", r"a\n", "--fim-suffix", "b", "-p", "c"]
    assert cli.main([*args, "-n", "2", "--verbose-prompt"]) == 0
    ids = re.findall(r"^ +(\d+) ->", capsys.readouterr().err, re.M)
    assert ids == ["256", "64", "198", "66", "257", "65", "258"]


FIM = ("pre", "suf", "mid")
