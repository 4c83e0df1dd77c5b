"""Screenshots of a terminal with commands and chats: docs/tour/*.svg.

    pip install -e '.[screenshots]'
    python -m dev.docs.terminal_pictures [SCENE ...]     # all scenes, or some

Each scene runs the real command in a pseudo-terminal, with the demo model and a seed, so everything
except times and rates is reproducible. docs/tour.md and docs/chat.md show the screenshots.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dev.docs.pseudo_terminal import CTRL_C, PseudoTerminal

OUT = Path(__file__).parents[2] / "docs" / "tour"
COLUMNS, LINES = 100, 26
COLOURS = {"brown": "yellow", "brightbrown": "bright_yellow", "brightblack": "#9a9a9a"}  # pyte's
FONT_FACES = re.compile(r"@font-face \{.*?\}\s*", re.S)  # fonts from the network

Scene = Callable[[PseudoTerminal], None]


def cold_start(t: PseudoTerminal) -> None:
    t.until(re.compile(r"\d+ of \d+ .*left").search)


def warm_start(t: PseudoTerminal) -> None:
    t.wait()


def chat(t: PseudoTerminal) -> None:
    say(t, "Who is there?", 1)
    say(t, "What news of the king?", 2)
    say(t, "/regen", 3)
    ready(t, 4)
    t.send("/set t\t")
    t.until("top-p")


def ctrl_c(t: PseudoTerminal) -> None:
    ready(t, 1)
    t.send("Tell me a long story.\r")
    t.until(lambda text: len(text.partition("story.")[2]) > 100)
    t.send(CTRL_C)
    t.until("(stopped)")
    say(t, "/set temp 0.5", 2)
    ready(t, 3)


def full_context(t: PseudoTerminal) -> None:
    for i, said in enumerate(("Who is there? " * 12, "And what news? " * 12, "And then? " * 12)):
        say(t, said.strip(), i + 1)
    ready(t, 4)


def wrong_option(t: PseudoTerminal) -> None:
    t.wait()


def wrong_command(t: PseudoTerminal) -> None:
    for i, said in enumerate(("/hlep", "/set tmp 0.5", "/set top-p 2", "/image cat.png")):
        say(t, said, i + 1)
    ready(t, 5)


SCENES: dict[str, tuple[str, Scene]] = {
    "cold-start": ('llama-py-cli -p "ROMEO:" -n 24 --temp 0', cold_start),
    "warm-start": ('llama-py-cli -p "ROMEO:" -n 24 --temp 0', warm_start),
    "chat": ("llama-py-cli -s 6", chat),
    "ctrl-c": ("llama-py-cli -s 3 --chat-template chatml", ctrl_c),
    "full-context": ("llama-py-cli -s 4 -c 256", full_context),
    "wrong-option": ("llama-py-cli --tmp 0.5 -p ROMEO:", wrong_option),
    "wrong-command": ("llama-py-cli", wrong_command),
}


def ready(t: PseudoTerminal, n: int) -> str:
    """Wait until the prompt appears for the n-th time."""
    return t.until(lambda text: f"\n{text}".count("\n>") >= n and text[-1:] == ">")


def say(t: PseudoTerminal, text: str, n: int) -> None:
    """Type a message at the n-th prompt."""
    ready(t, n)
    t.send(f"{text}\r")
    t.until(f"> {text}"[: COLUMNS // 2])


def run(name: str) -> PseudoTerminal:
    """Run a scene to its end and return its terminal."""
    command, scene = SCENES[name]
    with tempfile.TemporaryDirectory() as empty:
        env = {"XDG_DATA_HOME": empty, "PYTHONWARNINGS": "ignore"}
        if name == "ctrl-c":  # slow enough for a key in the middle of a response
            env["LLAMA_ARG_DEVICE"] = "ref"
        if name == "cold-start":
            env["LLAMA_PY_CACHE"] = empty
        words = shlex.split(command)
        words[0] = str(Path(sys.executable).with_name(words[0]))
        with PseudoTerminal(words, env, COLUMNS, LINES, f"$ {command}\n") as terminal:
            scene(terminal)
            return terminal


def svg(terminal: PseudoTerminal, title: str, name: str) -> str:
    """Return the screen as an SVG image; `name` is the prefix of its ids."""
    from rich.console import Console
    from rich.terminal_theme import MONOKAI
    from rich.text import Text

    console = Console(record=True, width=terminal.screen.columns, file=Path("/dev/null").open("w"))  # noqa: SIM115
    n_lines = len(terminal.text().splitlines())
    for y in range(n_lines):
        line = Text()
        for x in range(terminal.screen.columns):
            char = terminal.screen.buffer[y][x]
            line.append(char.data, _style(char))
        line.rstrip()
        console.print(line)
    made = console.export_svg(title=title, theme=MONOKAI, unique_id=name)
    return FONT_FACES.sub("", made)


def _style(char: Any) -> str:
    """Return rich's style for a character of pyte."""
    words = ["bold" * char.bold, "italic" * char.italics, "reverse" * char.reverse]
    words += [_colour(char.fg), f"on {_colour(char.bg)}" if char.bg != "default" else ""]
    return " ".join(filter(None, words))


def _colour(name: str) -> str:
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    known = COLOURS.get(name, name.replace("bright", "bright_"))
    return "" if name == "default" else known


def main() -> None:
    OUT.mkdir(exist_ok=True)
    for name in sys.argv[1:] or SCENES:
        (OUT / f"{name}.svg").write_text(svg(run(name), SCENES[name][0], name))
        print(f"{name}.svg")


if __name__ == "__main__":
    main()
