"""llama-py-cli: continue a text, or talk with a model; flags and defaults of llama-completion."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llama_py.sampler.params import SamplingParams
from llama_py_tools import session
from llama_py_tools.escapes import ENCODING, unescape
from llama_py_tools.generation import Run, TextOptions
from llama_py_tools.options import (
    CheckOptions,
    CommonOptions,
    ContextOptions,
    DeviceOptions,
    ModelOptions,
    add,
    collect,
    option,
)

if TYPE_CHECKING:
    from llama_py.tokenizer import Tokenizer


@dataclass(frozen=True)
class ChatOptions:
    """Conversations."""

    conversation: bool | None = option(
        None, "-cnv --conversation", "talk, with the model's chat template; /exit, /clear",
        off="-no-cnv --no-conversation",
    )  # fmt: skip
    single_turn: bool = option(False, "-st --single-turn", "one question, one answer")
    system_prompt: str = option("", "-sys --system-prompt", "what to be", metavar="TEXT")

    @property
    def wanted(self) -> bool:
        if self.conversation is not None:
            return self.conversation
        return self.single_turn or bool(self.system_prompt)


EPILOG = """examples:
  llama-py-cli -p "ROMEO:" -n 100                        the bundled demo model
  llama-py-cli -m model.gguf -p "The sea is" -n 32 --temp 0
  llama-py-cli -m model.gguf -cnv -sys "Be brief."
"""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="llama-py-cli", usage="%(prog)s [-m FILE] [-p TEXT] [-n N] [options]",
        description="Generate text with a GGUF model.", epilog=EPILOG, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    p.add_argument("--list-devices", action="store_true", help="list devices and exit")
    p.add_argument("--list-archs", action="store_true", help="list architectures and exit")
    add(p, CommonOptions, "general")
    add(p, ModelOptions, "model")
    add(p, TextOptions, "text")
    add(p, ChatOptions, "conversation")
    add(p, SamplingParams, "sampling")
    add(p, ContextOptions, "context")
    add(p, DeviceOptions, "device")
    add(p, CheckOptions, "check")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """0 done, 1 error, 2 wrong usage, 130 interrupted."""
    p = parser()
    args = p.parse_args(argv)
    text = collect(TextOptions, args)
    if text.file and text.prompt is not None:
        p.error("give either -p or -f")
    return session.run(_command, args)


def _command(args: argparse.Namespace) -> None:
    if args.list_devices:
        session.list_devices()
    elif args.list_archs:
        session.list_archs()
    else:
        _generate(args)


def _generate(args: argparse.Namespace) -> None:
    text, chat = collect(TextOptions, args), collect(ChatOptions, args)
    prompt = read_prompt(text)
    run = Run(args, text)
    if chat.wanted:
        from llama_py_tools.chat import Conversation

        system = unescape(chat.system_prompt) if text.escape else chat.system_prompt
        with run.summary:
            Conversation(run, system, chat.single_turn).talk(prompt)
        return
    if prompt is None and not args.model:
        prompt = session.DEMO_PROMPT
    ids = prompt_ids(run.model.tokenizer, prompt or "")
    session.check_length(run.ctx, ids)
    with run.summary:
        run.answer(ids, echo=text.display_prompt)
        run.end_line()


def read_prompt(text: TextOptions) -> str | None:
    """The prompt of -p or -f with its escapes processed; None if there is neither."""
    prompt = text.prompt
    if text.file == "-":
        prompt = "" if sys.stdin is None else sys.stdin.buffer.read().decode(*ENCODING)
    elif text.file:
        prompt = Path(text.file).read_bytes().decode(*ENCODING)
    if prompt is None:
        return None
    if text.file:
        prompt = prompt.removesuffix("\n")
    return unescape(prompt) if text.escape else prompt


def prompt_ids(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The tokens of a prompt; of an empty one, BOS. ContextError if there is none."""
    from ggml_py.errors import ContextError

    ids = tokenizer.tokenize(prompt) if prompt else []
    if ids:
        return ids
    if tokenizer.bos is None:
        raise ContextError("the prompt is empty and the model has no BOS token; give -p TEXT")
    return [tokenizer.bos]
