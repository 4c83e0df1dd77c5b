"""Slash commands of a chat: one function per command; its docstring is its help."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ggml_py.errors import ModelError
from llama_py.params.near import did_you_mean
from llama_py_tools.command.escapes import ENCODING
from llama_py_tools.generate.chat import saved, settings
from llama_py_tools.generate.chat.lines import PromptSource
from llama_py_tools.generate.thoughts import dim
from llama_py_tools.models import session

if TYPE_CHECKING:
    from llama_py import Conversation
    from llama_py_tools.generate.generation import GenerationRun


class ChatInterface(Protocol):
    """Interface of the interactive chat that commands change (`chat.Talk`)."""

    run: GenerationRun
    conversation: Conversation
    source: PromptSource
    attached: list[str]
    images: list[str | Path]
    ended: bool

    def clear(self) -> None: ...

    def set(self, changes: Mapping[str, Any]) -> None: ...

    def regenerate(self, text: str | None = None) -> None: ...

    def last_said(self) -> str: ...


Command = Callable[[ChatInterface, str], None]

LOOKS_LIKE = re.compile(r"/(?:[A-Za-z]+|\?)(?=\s|$)")


def help(talk: ChatInterface, rest: str) -> None:
    """list the commands (also /?)"""
    for name, command in COMMANDS.items():
        session.tell(f"{USAGE.get(name, name):18} {command.__doc__}")
    session.tell(
        'end a line with \\ to continue it in the next; enclose several lines in """; start a '
        "message with a space so that it is not a command"
    )


def clear(talk: ChatInterface, rest: str) -> None:
    """start a new conversation (also /new, /reset)"""
    talk.clear()


def system(talk: ChatInterface, rest: str) -> None:
    """change the system prompt; without a text: print it"""
    if rest:
        talk.conversation.system = rest
    else:
        session.tell(talk.conversation.system or "(no system prompt; set one with /system TEXT)")


def regen(talk: ChatInterface, rest: str) -> None:
    """generate the last response again (also /retry)"""
    if not talk.run.sampler.is_random:
        session.tell(dim("(temp is 0, so the response will be the same)"))
    talk.regenerate()


def edit(talk: ChatInterface, rest: str) -> None:
    """replace the last message, and generate a new response"""
    if not talk.last_said():
        raise ModelError("the conversation has no message to edit; send one first")
    text = rest or talk.source.read_once(talk.last_said())
    if text and text.strip():
        talk.regenerate(text.strip())


def read(talk: ChatInterface, rest: str) -> None:
    """attach a text file to the next message"""
    path = _path(rest, "/read FILE")
    data = path.read_bytes()
    if b"\0" in data:
        raise ModelError(f"{path} is not a text file; use UTF-8 text")
    talk.attached.append(data.decode(*ENCODING))
    session.tell(dim(f"({path}, {len(data)} bytes, added to your next message)"))


def image(talk: ChatInterface, rest: str) -> None:
    """attach an image to the next message"""
    from llama_py.vision.image import Image

    path = _path(rest, "/image FILE")
    if talk.run.model.vision is None:
        raise ModelError(
            "no vision encoder is loaded; start the chat with --mmproj FILE, or use /read FILE for "
            "a text file"
        )
    width, height = Image.open(path).size
    talk.images.append(path)
    session.tell(dim(f"({path}, {width} x {height}, added to your next message)"))


def save(talk: ChatInterface, rest: str) -> None:
    """save messages and settings to a JSON file"""
    path, c = _path(rest, "/save FILE"), talk.conversation
    name = str(talk.run.model.file.metadata.get("general.name", talk.run.model.arch))
    saved.save(path, name, c.messages, settings.values(talk.run))
    session.tell(dim(f"({len(c.messages)} messages saved to {path})"))


def load(talk: ChatInterface, rest: str) -> None:
    """load a saved conversation and continue it"""
    path = _path(rest, "/load FILE")
    messages, changes = saved.load(path)
    before = list(talk.conversation.messages)
    talk.conversation.resume(messages)
    try:
        talk.set(changes)
    except BaseException:
        talk.conversation.resume(before)
        raise
    session.tell(dim(f"({len(messages)} messages loaded from {path})"))


def set(talk: ChatInterface, rest: str) -> None:
    """print or change settings, such as /set temp 0.5"""
    name, _, text = rest.partition(" ")
    if not name:
        session.tell(settings.text(talk.run))
        return
    setting = settings.find_setting(name)
    if text.strip():
        talk.set({setting[0].name: settings.parse_value(setting, text.strip())})
    session.tell(f"{name} is {settings.show_value(settings.values(talk.run)[setting[0].name])}")


def exit(talk: ChatInterface, rest: str) -> None:
    """end the chat (also /bye, /quit, Ctrl-D)"""
    talk.ended = True


COMMANDS: dict[str, Command] = {
    f"/{f.__name__}": f
    for f in (help, clear, system, regen, edit, read, image, save, load, set, exit)
}
USAGE = {
    f"/{name}": f"/{name} {what}"
    for name, what in {
        "system": "[TEXT]",
        "edit": "[TEXT]",
        "read": "FILE",
        "image": "FILE",
        "save": "FILE",
        "load": "FILE",
        "set": "[NAME [VALUE]]",
    }.items()
}
ALIASES = {  # names in other chat programs
    "/?": "/help",
    "/bye": "/exit",
    "/quit": "/exit",
    "/new": "/clear",
    "/reset": "/clear",
    "/retry": "/regen",
}
FILES_OF = dict.fromkeys(("/read", "/image", "/save", "/load"), "files")  # see terminal.FILES


def split(line: str) -> tuple[str, str] | None:
    """Return a command and its argument, or None for a message such as `/usr/bin: explain`."""
    found = LOOKS_LIKE.match(line)
    if found is None:
        return None
    return ALIASES.get(found[0], found[0]), line[found.end() :].strip()


def obey(talk: ChatInterface, name: str, rest: str) -> None:
    """Run a command; ModelError if it does not exist."""
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS) or "/help lists all"
        raise ModelError(f"unknown command {name}; {hint}")
    COMMANDS[name](talk, rest)


def _path(text: str, usage: str) -> Path:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    if not text:
        raise ModelError(f"file name is missing; use {usage}")
    return Path(text).expanduser()
