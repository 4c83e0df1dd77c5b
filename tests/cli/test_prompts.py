"""Where a prompt comes from, and how it is shown."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from llama_py_tools.generate import cli
from llama_py_tools.generate.generation import PLAIN, YELLOW
from tests.support.commands import demo_with_template

QUICK = ["-dev", "ref", "-n", "1", "--temp", "0"]
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[str, str]:
    assert cli.main([*QUICK, *argv]) == 0
    found = capsys.readouterr()
    return found.out, found.err


def test_what_is_piped_is_the_prompt(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for text, begins in (("JULIET:\n", "JULIET:"), ("A\\nB\nC", "A\nB\nC"), ("", "ROMEO:")):
        (tmp_path / "in").write_text(text)
        with (tmp_path / "in").open() as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            assert shown(capsys)[0].startswith(begins)
    with (tmp_path / "in").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert shown(capsys, "-p", "B")[0].startswith("B")


def test_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("A\\nB\n")
    assert shown(capsys, "-f", str(tmp_path / "text"), "-n", "0")[0] == "A\nB\n"
    _, err = shown(capsys, "-bf", str(tmp_path / "text"), "--verbose-prompt", "-n", "0")
    assert err.count("'\\n'") == 2
    _, err = shown(capsys, "-bf", str(tmp_path / "text"), "--verbose-prompt", "--no-escape")
    assert err.count("'\\\\'") == 1
    with pytest.raises(SystemExit):
        cli.main(["-bf", "a", "-f", "b"])
    assert "set only one of -p, -f and -bf" in capsys.readouterr().err


def test_the_system_prompt_from_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "system").write_text("Speak.\n")
    model = str(demo_with_template(tmp_path, TEMPLATE))
    given = ["-m", model, "-st", "-p", "A"]
    sizes = []
    for more in (["-sysf", str(tmp_path / "system")], ["-sys", "Speak."], []):
        found = re.search(r"prompt (\d+) tokens", shown(capsys, *given, *more)[1])
        assert found is not None
        sizes.append(int(found[1]))
    assert sizes[0] == sizes[1] > sizes[2]
    with pytest.raises(SystemExit):
        cli.main(["-sys", "a", "-sysf", "b"])
    assert cli.main([*QUICK, *given, "-sysf", str(tmp_path / "no")]) == 1
    assert "error: " in capsys.readouterr().err


def test_tokens_of_the_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = shown(capsys, "-p", "ROMEO:", "--verbose-prompt")
    first, *tokens = err.splitlines()[:3]
    assert first == "number of tokens in prompt = 2"
    assert [token.partition(" -> ")[2] for token in tokens] == ["'ROMEO'", "':'"]


def test_colour(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = shown(capsys, "-p", "A", "-co", "on")
    assert out.startswith(f"{YELLOW}A{PLAIN}")
    assert "\033" not in shown(capsys, "-p", "A")[0]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert shown(capsys, "-p", "A")[0].startswith(YELLOW)
    assert "\033" not in shown(capsys, "-p", "A", "-co", "off")[0]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in shown(capsys, "-p", "A")[0]


def test_times_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "-p", "A", "--no-perf")[1] == ""
    _, err = shown(capsys, "-p", "ROMEO:", "-n", "6", "--no-perf", "-ptc", "3")
    assert [line for line in err.splitlines() if line] == [
        f"{n} of 1024 tokens of the context are used" for n in (3, 6)
    ]


def test_variables_that_turn_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_NO_PERF", "")
    assert shown(capsys, "-p", "A")[1] == ""
    assert "| generated" in shown(capsys, "-p", "A", "--perf")[1]


def test_what_is_no_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal and /dev/null are devices; there may be no stdin at all."""
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert not cli.is_piped()
    monkeypatch.setattr(sys, "stdin", None)
    assert not cli.is_piped()
