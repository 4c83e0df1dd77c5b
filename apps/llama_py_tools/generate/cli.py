"""llama-py-cli: continue a text, or chat with a model; flags and defaults of llama-completion.

The first words `cache` and `warmup` are subcommands; their modules have these names.
"""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ggml_py.errors import ModelError
from llama_py.params import ContextParams, GenerateParams, ModelParams, SamplingParams
from llama_py.params.diffusion import DiffusionParams
from llama_py.params.option import Params, get_options, option
from llama_py.params.speculative import SpeculativeParams
from llama_py_tools.command.chat_params import ChatParams
from llama_py_tools.command.cpus import CpuParams
from llama_py_tools.command.escapes import ENCODING, unescape
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.params import (
    CommonParams,
    DraftFileParams,
    FileParams,
    FormParams,
    SteeringParams,
)
from llama_py_tools.command.ranks import HostsParams
from llama_py_tools.commands import COMMANDS
from llama_py_tools.generate import vision
from llama_py_tools.generate.generation import CompletionParams, GenerationRun
from llama_py_tools.generate.interactive import InteractiveParams, InteractiveText
from llama_py_tools.generate.prompt_cache import CachedPrompt, PromptCacheParams
from llama_py_tools.generate.vision import VisionParams
from llama_py_tools.mcp.params import McpParams
from llama_py_tools.models import session

if TYPE_CHECKING:
    from llama_py import Model
    from llama_py.tokenizer import Tokenizer


class ListParams(Params):
    """Options that print a list and exit."""

    group = "lists"

    list_devices: bool = option(False, "--list-devices", "list devices and exit", env="")
    cache_list: bool = option(
        False, "-cl --cache-list", "list cached models of the Hugging Face Hub and exit", env=""
    )
    list_archs: bool = option(False, "--list-archs", "list architectures and exit", env="")


COMMON = (
    "-m -hf -p -f -n -cnv -st -sys -rea -mm --image",
    "--temp --top-k --top-p --min-p --repeat-penalty -s -j",
    "-c -t -fa -ctk -ctv -dev -ngl -ncmoe --lora -md --spec-type --list-devices -v",
)
EPILOG = """examples:
  %(prog)s -m model.gguf                         # chat
  %(prog)s -m model.gguf -p "The sea is" -n 32   # continue a text, or answer once with -st
  %(prog)s -hf user/model-GGUF:Q4_K_M            # download a model once, then chat

subcommands, with their own --help:
  llama-py-cli warmup -m model.gguf                  # compile the kernels of a model
  llama-py-cli cache                                 # list or clear compiled kernels
"""

OTHERS = ("cache", "warmup")  # commands


def parser() -> OptionParser:
    p = OptionParser(
        "llama-py-cli",
        COMMON,
        usage="%(prog)s [-m FILE] [-p TEXT] [-n N] [options]",
        description="Chat with a GGUF model, or continue a text.",
        epilog=EPILOG,
    )
    p.others = OTHERS
    p.add(ListParams, CommonParams, FileParams, CompletionParams)
    p.add(GenerateParams, without={f.name for f, _ in get_options(SpeculativeParams)})
    p.add(ChatParams, McpParams, VisionParams, InteractiveParams, PromptCacheParams)
    p.add(SamplingParams)
    p.add(SpeculativeParams, DraftFileParams)
    p.add(DiffusionParams)
    p.add(ContextParams, CpuParams, FormParams, SteeringParams, ModelParams, HostsParams)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (docs/commands.md)."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words and words[0] in OTHERS:
        return int(COMMANDS[words[0]].load().main(words[1:]))
    p = parser()
    args = p.parse_args(words)
    text = read(args, CompletionParams)
    if (text.prompt is not None) + bool(text.file) + bool(text.binary_file) > 1:
        p.error("set only one of -p, -f and -bf")
    chat = read(args, ChatParams)
    if chat.system_prompt and chat.system_prompt_file:
        p.error("set either -sys or -sysf")
    if chat.chat_template and chat.chat_template_file:
        p.error("set either --chat-template or --chat-template-file")
    turns = read(args, InteractiveParams).is_interactive
    if (chat.requests_chat or turns) and read(args, PromptCacheParams).prompt_cache:
        p.error("--prompt-cache does not support conversations; use it with completions")
    if read(args, VisionParams).image and (turns or read(args, PromptCacheParams).prompt_cache):
        p.error("--image cannot be combined with -i or --prompt-cache")
    return session.run(_command, args)


def _command(args: argparse.Namespace) -> None:
    wanted = read(args, ListParams)
    if wanted.list_devices:
        session.list_devices()
    elif wanted.cache_list:
        from llama_py_tools.models.hub import list_cached

        session.write(list_cached())
    elif wanted.list_archs:
        session.list_archs()
    elif read(args, DiffusionParams).is_set:
        _diffuse(args)
    else:
        _generate(args)


def _diffuse(args: argparse.Namespace) -> None:
    """Write a response by diffusion."""
    from llama_py_tools.generate import diffusion

    text, chat = read(args, CompletionParams), with_system(read(args, ChatParams))
    prompt, template = read_prompt(text), chat.template()
    model = session.open_model(args)
    if template is not None:
        model.set_chat_template(template)
    if prompt and chat.is_chat(model):
        messages = [{"role": "system", "content": chat.system_prompt}] if chat.system_prompt else []
        prompt = model.apply_chat_template([*messages, {"role": "user", "content": prompt}])
    diffusion.write(args, model, prompt_ids(model.tokenizer, prompt or ""))


def _generate(args: argparse.Namespace) -> None:
    text, chat = read(args, CompletionParams), with_system(read(args, ChatParams))
    cache, template = read(args, PromptCacheParams), chat.template()
    prompt, seen = read_prompt(text), read(args, VisionParams)
    seen.check()
    session.fetch_draft(args)
    run = GenerationRun(args, text)
    vision.load(args, run.model)
    if template is not None:
        run.model.set_chat_template(template)
    turns = read(args, InteractiveParams)
    demo = not read(args, FileParams).has_model and template is None
    fills = text.is_infill
    if not (fills or cache.prompt_cache or turns.raw) and talks(chat, run.model, demo, prompt):
        from llama_py_tools.generate.chat import Talk
        from llama_py_tools.generate.chat.tool_calls import open_tools

        with closing(open_tools(read(args, McpParams))) as tools, run.summary:
            run.get_ready(None)
            Talk(run, chat, text.escape, seen.image, tools).talk(prompt)
        return
    if read(args, McpParams).mcp:
        raise ModelError("--mcp needs a chat; use llama-py chat, or a model with a chat template")
    if prompt is None and not turns.is_interactive and not fills and is_piped():
        prompt = process_escapes(read_text("-").removesuffix("\n"), text) or None
    if prompt is None and not fills and not read(args, FileParams).has_model:
        prompt = session.DEMO_PROMPT
    if fills:
        ids = gap_ids(run, text, prompt)
    elif seen.image:
        ids = vision.prompt(run.model, prompt or "", seen.image)
    else:
        ids = prompt_ids(run.model.tokenizer, prompt or "")
    session.check_length(run.ctx, ids)
    if text.verbose_prompt:
        run.tell_tokens(ids)
    run.get_ready(len(ids))
    if turns.is_interactive:
        with run.summary:
            InteractiveText(run, turns, chat.multiline_input).go(ids, text.display_prompt)
            run.end_line()
        return
    answer = CachedPrompt(run, cache).answer if cache.prompt_cache else run.answer
    with run.summary:
        answer(ids, text.display_prompt)
        run.end_line()


def talks(chat: ChatParams, model: Model, demo: bool, prompt: str | None) -> bool:
    """Return True if this is a conversation. The demo model writes plays: it chats only on request,
    or if started without a prompt on a terminal."""
    if demo and not chat.requests_chat and (prompt is not None or not on_terminal()):
        return False
    return chat.is_chat(model)


def on_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def with_system(chat: ChatParams) -> ChatParams:
    """Apply the system prompt of -sysf, and reasoning in the response if requested."""
    if chat.skip_chat_parsing:
        chat = replace(chat, reasoning_format="none")
    if not chat.system_prompt_file:
        return chat
    text = read_text(chat.system_prompt_file, "-sysf").removesuffix("\n")
    return replace(chat, system_prompt=text)


def read_text(file: str, flag: str = "-f") -> str:
    """Read a file, or stdin (-). OSError, with the flag that named it."""
    if file != "-":
        try:
            return Path(file).read_bytes().decode(*ENCODING)
        except OSError as e:
            raise OSError(e.errno, e.strerror, f"{flag} {file}") from None
    return "" if sys.stdin is None else sys.stdin.buffer.read().decode(*ENCODING)


def process_escapes(prompt: str, text: CompletionParams) -> str:
    """Process a prompt's escapes, unless that is turned off."""
    return unescape(prompt) if text.escape else prompt


def read_prompt(text: CompletionParams) -> str | None:
    """Return the prompt of -p, -f or -bf with escapes processed, or None without a prompt."""
    if text.binary_file:
        return process_escapes(read_text(text.binary_file, "-bf"), text)
    if text.file:
        return process_escapes(read_text(text.file).removesuffix("\n"), text)
    return None if text.prompt is None else process_escapes(text.prompt, text)


def is_piped() -> bool:
    """Return True if stdin is a pipe or a file, not a terminal or /dev/null."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def gap_ids(run: GenerationRun, text: CompletionParams, prompt: str | None) -> list[int]:
    """Return the tokens that request the text between --fim-prefix and --fim-suffix."""
    from llama_py.text.infill import infill_ids

    prefix, suffix = (process_escapes(t or "", text) for t in (text.fim_prefix, text.fim_suffix))
    return infill_ids(
        run.model.tokenizer,
        prefix,
        suffix,
        prompt=prompt or "",
        n_ctx=run.ctx.n_ctx,
        spm=text.spm_infill,
    )


def prompt_ids(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Return the tokens of a prompt; BOS for an empty one, or ContextError without BOS."""
    from ggml_py.errors import ContextError

    ids = tokenizer.tokenize(prompt) if prompt else []
    if ids:
        return ids
    if tokenizer.bos is None:
        raise ContextError("the prompt is empty and the model has no BOS token; use -p TEXT")
    return [tokenizer.bos]
