"""The chat as a user has it: typed at a pseudo-terminal."""

from __future__ import annotations

import re
import stat
import sys
from pathlib import Path

import pytest

from llama_py_tools.generate.chat import commands
from tests.support.commands import ROOT, SCRIPTS, clean_environment

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

from dev.docs import terminal_pictures
from dev.docs.pseudo_terminal import CTRL_C, CTRL_D, PseudoTerminal

CHAT = [str(SCRIPTS / "llama-py-cli"), "-s", "1", "-c", "1024"]


def typed_at(folder: Path, *flags: str, **env: str) -> PseudoTerminal:
    more = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data"), **env}
    return PseudoTerminal([*CHAT, *flags], {**clean_environment(), **more})


def ready(terminal: PseudoTerminal, n: int = 1) -> str:
    """The screen once the prompt is there for the n-th time."""
    return terminal.until(lambda text: f"\n{text}\n".count("\n>") >= n and text[-1] == ">")


def test_a_conversation(tmp_path: Path) -> None:
    """A message, Ctrl-C in the middle of an answer, which stays; commands; the end."""
    endless = ("--chat-template", "chatml")  # the demo never ends such an answer
    with typed_at(tmp_path, *endless) as terminal:
        ready(terminal)
        terminal.send("Who is there?\r")
        terminal.until(lambda text: len(text.partition("there?")[2]) > 80)
        terminal.send(CTRL_C)
        shown = terminal.until("(stopped)")
        answer = shown.rpartition("there?")[2].partition("(stopped)")[0].split()
        terminal.send(f"/save {tmp_path / 'talk.json'}\r")
        terminal.until("2 messages saved to")
        terminal.send("/hlep\r")
        terminal.until("error: unknown command /hlep; did you mean /help?")
        terminal.send("/set tmp 1\r")
        terminal.until("error: unknown setting 'tmp'; did you mean temp")
        terminal.send("/exit\r")
        assert terminal.wait() == 0 and "stop: " in terminal.text()
    saved = (tmp_path / "talk.json").read_text()
    assert len(answer) > 5 and all(word in saved for word in answer[:5])
    history = tmp_path / "data" / "llama-py" / "chat_history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600 and "+Who is there?" in history.read_text()


def test_keys_at_the_prompt(tmp_path: Path) -> None:
    """Ctrl-C clears the line, the next one ends; completion; lines of an earlier run."""
    with typed_at(tmp_path, "-n", "2") as terminal:
        ready(terminal)
        terminal.send(b"never said \xff" + CTRL_C.encode())
        terminal.until("(press Ctrl-C again or Ctrl-D, or type /exit, to quit)")
        terminal.send("/sys\t")
        terminal.until("> /system")
        terminal.send("Be brief.\r")
        terminal.send("/system\r")
        terminal.until("\nBe brief.")
        terminal.send('"""one\rtwo"""\r')
        terminal.until('. two"""')
        ready(terminal, 5)
        terminal.send(CTRL_C)
        ready(terminal, 6)
        terminal.send(CTRL_C)
        assert terminal.wait() == 0
        assert "| generated 2 tokens" in terminal.text()  # the message was answered
    with typed_at(tmp_path, "-n", "2", NO_COLOR="1") as terminal:
        ready(terminal)
        terminal.send("\x1b[A")  # up
        terminal.until('. two"""')
        terminal.send(CTRL_C)
        ready(terminal, 2)
        terminal.send(CTRL_D)
        assert terminal.wait() == 0


def test_simple_lines(tmp_path: Path) -> None:
    with typed_at(tmp_path, "--simple-io", "-n", "2") as terminal:
        ready(terminal)
        terminal.send("one \\\rtwo\r")
        terminal.until("\n. ")
        ready(terminal, 2)
        terminal.send(CTRL_D)
        assert terminal.wait() == 0
    assert not (tmp_path / "data").exists()


def test_every_picture_of_a_terminal_is_on_a_page() -> None:
    """The tour and the page of chats have the pictures of dev/docs/terminal_pictures.py only."""
    tour, page = ((ROOT / "docs" / name).read_text() for name in ("tour.md", "chat.md"))
    pictures = [f"tour/{name}.svg" for name in terminal_pictures.SCENES]
    assert re.findall(r"\((tour/.*?\.svg)\)", tour + page) == pictures
    assert all((ROOT / "docs" / picture).stat().st_size > 1000 for picture in pictures)
    assert all(f"`{name}" in page or f", `{name}" in page for name in commands.COMMANDS)
