"""llama-py-cli: continue a text, or talk with a model. Flags and defaults are llama-completion's."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from llama_py.sampler.params import SamplingParams
from llama_py_tools import session
from llama_py_tools.options import (
    CommonOptions,
    ContextOptions,
    DeviceOptions,
    ModelOptions,
    add,
    collect,
    option,
)
from llama_py_tools.progress import Progress

if TYPE_CHECKING:
    from llama_py import Context, Model, Piece, Sampler
    from llama_py.batch import UBatch
    from llama_py.inputs import GraphResult
    from llama_py.tokenizer import Tokenizer


@dataclass(frozen=True)
class TextOptions:
    """What is generated, and how it is shown."""

    prompt: str | None = option(None, "-p --prompt", "text to continue", metavar="TEXT")
    file: str = option("", "-f --file", "read the prompt from a file (-: stdin)", metavar="FILE")
    n_predict: int = option(
        -1, "-n --predict --n-predict", "tokens to generate (-1: to the end, or a full context)"
    )
    reverse_prompt: tuple[str, ...] = option(
        (), "-r --reverse-prompt", "stop at this text; may be repeated", metavar="TEXT",
        parse=str, repeat=True,
    )  # fmt: skip
    display_prompt: bool = option(
        True, "--display-prompt", "show the prompt before its continuation",
        off="--no-display-prompt",
    )  # fmt: skip
    escape: bool = option(
        True, "-e --escape", r"read \n, \t, \\, \x41 in texts", off="--no-escape"
    )
    special: bool = option(False, "-sp --special", "show special tokens")
    ignore_eos: bool = option(False, "--ignore-eos", "do not stop where the model would")


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
        prog="llama-py-cli", description="Generate text with a GGUF model.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
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
    with run.summary:
        if text.display_prompt:
            session.write(run.shown(ids))
        run.answer(ids)
        if not run.ends_line:
            session.write("\n")


def read_prompt(text: TextOptions) -> str | None:
    """The prompt of -p or -f with its escapes processed; None if there is neither."""
    prompt = text.prompt
    if text.file == "-":
        prompt = "" if sys.stdin is None else sys.stdin.buffer.read().decode(*_TEXT)
    elif text.file:
        prompt = Path(text.file).read_bytes().decode(*_TEXT)
    if prompt is None:
        return None
    if text.file:
        prompt = prompt.removesuffix("\n")
    return unescape(prompt) if text.escape else prompt


_TEXT = ("utf-8", "surrogateescape")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}


def unescape(text: str) -> str:
    r"""`\n`, `\r`, `\t`, quotes, `\\`, and `\x41` for any byte (common.cpp:string_process_escapes)."""
    out = bytearray()
    i = 0
    while i < len(text):
        following = text[i + 1 : i + 2]
        if text[i] != "\\" or not following:
            out += text[i].encode(*_TEXT)
            i += 1
        elif following in _ESCAPES:
            out += _ESCAPES[following].encode()
            i += 2
        elif following == "x" and _is_hex(text[i + 2 : i + 4]):
            out.append(int(text[i + 2 : i + 4], 16))
            i += 4
        else:
            out += text[i : i + 2].encode(*_TEXT)
            i += 2
    return out.decode(*_TEXT)


def _is_hex(text: str) -> bool:
    return len(text) == 2 and all(c in "0123456789abcdefABCDEF" for c in text)


def prompt_ids(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The tokens of a prompt; of an empty one, BOS. ContextError if there is none."""
    from ggml_py.errors import ContextError

    ids = tokenizer.tokenize(prompt) if prompt else []
    if ids:
        return ids
    if tokenizer.bos is None:
        raise ContextError("the prompt is empty and the model has no BOS token; give -p TEXT")
    return [tokenizer.bos]


class Summary:
    """How long everything took, told on stderr at the end, also of an interrupted run."""

    def __init__(self) -> None:
        self.load_seconds = 0.0
        self.model = ""
        self.n_reused = 0
        self.piece: Piece | None = None
        self.pending: tuple[int, float] | None = None  # prompt tokens, and when they were started

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or kind is KeyboardInterrupt:
            session.tell(self.text(interrupted=kind is not None))

    def text(self, interrupted: bool) -> str:
        lines = ["", f"load {self.load_seconds:.2f} s | {self.model}"]
        if self.pending is not None:
            n, start = self.pending
            lines.append(f"prompt {n} tokens, stopped after {perf_counter() - start:.2f} s")
        elif self.piece is not None:
            p = self.piece
            reused = f" ({self.n_reused} reused)" if self.n_reused else ""
            reason = p.finish_reason or ""
            lines.append(
                f"prompt {p.prompt_tokens} tokens{reused}, {p.prompt_rate:.2f} t/s"
                f" | generated {p.gen_tokens} tokens, {p.gen_rate:.2f} t/s"
                f" | stop: {'interrupted' if interrupted else reason}"
            )
        return "\n".join(lines)


class Run:
    """A loaded model, its context and sampler, and where its text goes."""

    def __init__(self, args: argparse.Namespace, text: TextOptions) -> None:
        start = perf_counter()
        self.options = text
        self.model: Model = session.open_model(args)
        self.ctx: Context = session.open_context(args, self.model)
        self.sampler = self._make_sampler(collect(SamplingParams, args))
        stops = [unescape(s) for s in text.reverse_prompt] if text.escape else text.reverse_prompt
        self.stop = [s for s in stops if s]
        self.ends_line = False
        self.summary = Summary()
        self.summary.load_seconds = perf_counter() - start
        self.summary.model = describe(self.model, self.ctx)

    def _make_sampler(self, params: SamplingParams) -> Sampler:
        from llama_py.sampler import Sampler

        if self.options.ignore_eos:
            never = dict.fromkeys(self.model.tokenizer.eog, -math.inf)
            params = replace(params, logit_bias={**params.logit_bias, **never})
        sampler = Sampler(params, self.ctx.n_vocab)
        session.log.info("seed %d", sampler.seed)
        return sampler

    def shown(self, ids: Sequence[int]) -> str:
        """Tokens as llama-completion echoes them."""
        tokenizer = self.model.tokenizer
        data = b"".join(tokenizer.token_to_piece(id, self.options.special) for id in ids)
        return data.decode(*_TEXT)

    def answer(self, ids: Sequence[int]) -> list[int]:
        """Continue with the tokens, writing text as it comes; returns the generated tokens."""
        from llama_py import stream

        self.summary.pending = len(ids), perf_counter()
        self.ctx.on_graph = PromptProgress(len(ids))
        generated = []
        for piece in stream(
            self.ctx, ids, max_tokens=max(self.options.n_predict, -1), sampler=self.sampler,
            stop=self.stop, special=self.options.special,
        ):  # fmt: skip
            self.ctx.on_graph = None
            self.summary.pending, self.summary.piece = None, piece
            if piece.token is not None:
                generated.append(piece.token)
            if piece.text:
                session.write(piece.text)
                self.ends_line = piece.text.endswith("\n")
        return generated


class PromptProgress:
    """Counts the tokens of a prompt as its graphs are started."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.progress = Progress("prompt", after=1.0)

    def __call__(self, res: GraphResult, ubatch: UBatch) -> None:
        self.progress(self.done, self.total + 1)
        self.done += ubatch.n_tokens
        if self.done >= self.total:
            self.progress.close()


def describe(model: Model, ctx: Context) -> str:
    """`qwen35moe, 4 layers on cpu, 7.1 MiB | context 1024, 0.5 MiB | compute 3.2 MiB`"""
    use = ctx.memory_breakdown()
    mib = {key: sum(u[key] for u in use.values()) / 2**20 for key in ("model", "context", "compute")}
    return (
        f"{model.arch}, {model.hparams.n_layer} layers on {model.device.name},"
        f" {mib['model']:.2f} MiB | context {ctx.n_ctx}, {mib['context']:.2f} MiB"
        f" | compute {mib['compute']:.2f} MiB"
    )
