"""docs/options.md: every option of every command, from where it is declared.

python -m dev.docs.option_table > docs/options.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import Field
from typing import Any

from llama_py.params.option import Option, Params
from llama_py_tools.command.options import OptionParser, default_text
from llama_py_tools.commands import COMMANDS

WORDS = """
    run cache warmup debug gguf graph bench imatrix embedding perplexity cvector-generator serve
    test-backend-ops
"""
MODULES = [COMMANDS[word].load() for word in WORDS.split()]

HEAD = """# Options

Made by `python -m dev.docs.option_table > docs/options.md`; a test fails when it is stale.
A flag wins over its variable; commands are named without `llama-py-`. The classes are those of
`llama_py.params`, which take the fields as keywords, and of the commands' modules.
"""


def table() -> str:
    """The whole file: a section for each dataclass, a row for each field that has flags."""
    sections: dict[type[Params], dict[Field[Any], Option]] = {}
    commands: dict[Field[Any], list[str]] = {}
    for parser in (p for module in MODULES for p in _parsers(module.parser())):
        for kind, f, o in parser.added:
            if f not in commands:
                sections.setdefault(kind, {})[f] = o
            commands.setdefault(f, []).append(parser.prog.removeprefix("llama-py-"))
    return HEAD + "".join(
        f"\n## {kind.__name__}\n\n{(kind.__doc__ or '').splitlines()[0]}\n\n"
        + _row("option", "variable", "default", "meaning", "commands")
        + "|---" * 5
        + "|\n"
        + "".join(
            _row(_flags(o), _code(o.env or ""), _default(f), _plain(o.help), ", ".join(commands[f]))
            for f, o in section.items()
        )
        for kind, section in sections.items()
    )


def _parsers(parser: argparse.ArgumentParser) -> Iterator[OptionParser]:
    """The command's, or those of its subcommands."""
    inner = [p for a in parser._actions if isinstance(a.choices, dict) for p in a.choices.values()]
    yield from (p for p in inner or [parser] if isinstance(p, OptionParser))


def _flags(o: Option) -> str:
    return ", ".join(map(_code, (*o.flags, *o.off)))


def _default(f: Field[Any]) -> str:
    """A switch's too."""
    if isinstance(f.default, bool):
        return "on" if f.default else "off"
    return _code(default_text(f))


def _plain(text: str) -> str:
    """`<` would begin a tag, and `\\` take the next character's meaning."""
    return text.replace("\\", r"\\").replace("<", r"\<")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


if __name__ == "__main__":
    print(table(), end="")
