"""llama-py: every command as a subcommand, with the model as the first argument.

llama-py run sea-0.6b "Why is the sky blue?"
llama-py chat user/model-GGUF:Q4_K_M
llama-py model.gguf                         # the same as llama-py run model.gguf
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from llama_py.params.near import did_you_mean
from llama_py_tools.command import options
from llama_py_tools.command.options import OptionParser
from llama_py_tools.commands import WORDS

EPILOG = """MODEL is a GGUF file, a short name (llama-py list), or USER/MODEL[:TYPE] of the Hugging
Face Hub (default: the bundled demo model). Without COMMAND, llama-py runs MODEL. Each
command has its own --help.

examples:
  llama-py chat                                    # chat with the demo model
  llama-py run model.gguf "What is a sea?"         # answer a prompt once
  llama-py pull user/model-GGUF:Q4_K_M             # download a model
"""


def parser() -> OptionParser:
    lines = [f"  {word:18} {one.about}" for word, one in WORDS.items()]
    return OptionParser(
        "llama-py",
        usage="%(prog)s [COMMAND] [MODEL] [options]",
        description="Run GGUF models.\n\ncommands:\n" + "\n".join(lines),
        epilog=EPILOG,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; 2 for an unknown one."""
    words = sys.argv[1:] if argv is None else list(argv)
    if not words or words[0].startswith("-"):
        p = parser()
        p.parse_args(words)
        p.print_help()
        return 0
    if words[0] not in WORDS:
        hint = did_you_mean(words[0], WORDS)
        if not _is_model(words[0], "" if hint else words[0]):
            parser().error(f"unknown command {words[0]!r}; {hint or '--help lists all'}")
        words.insert(0, "run")
    command = WORDS[words[0]]
    options.called_as = f"llama-py {words[0]}"
    return int(command.load().main(arguments(words[0], words[1:])) or 0)


def _is_model(name: str, short_name: str) -> bool:
    """Return whether a word is a file, USER/MODEL of the hub, or a model's whole short name."""
    from pathlib import Path

    if name.endswith(".gguf") or _model(name)[0] == "-hf" or Path(name).is_file():
        return True
    from llama_py_tools.models.local_models import known_models

    return bool(short_name) and short_name in known_models()


def arguments(word: str, rest: Sequence[str]) -> list[str]:
    """Return the arguments with flags before a leading model name and prompt."""
    if not WORDS[word].model:
        return list(rest)
    n = next((i for i, one in enumerate(rest) if one.startswith("-")), len(rest))
    plain, flags = list(rest[:n]), list(rest[n:])
    given = [*_model(plain[0]), *flags] if plain else flags
    if word == "run" and plain[1:]:
        return [*given, "-st", "-p", " ".join(plain[1:])]
    if word == "chat":
        given = ["-cnv", *given]
    return [*given, *plain[1:]]


def _model(name: str) -> list[str]:
    user, slash, model = name.partition("/")
    of_hub = slash and user not in ("", ".", "..") and "/" not in model and "." not in user
    if of_hub and not name.endswith(".gguf"):
        from pathlib import Path

        if not Path(name).exists():
            return ["-hf", name]
    return ["-m", name]
