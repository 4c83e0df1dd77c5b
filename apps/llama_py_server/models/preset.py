"""Files of --models-preset: options of models, in sections (common/preset.cpp).

version = 1
[*]                       ; of all
ctx-size = 4096
[small]                   ; of one that is found elsewhere too, or has its own file
model = small.gguf
LLAMA_ARG_N_PARALLEL = 2
"""

from __future__ import annotations

import configparser
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ggml_py.errors import ModelError
from llama_py.params.texts import truth

if TYPE_CHECKING:
    from llama_py.params.option import Option
    from llama_py_tools.command.options import OptionParser

ALL = "*"
Options = dict[str, tuple["Option", bool]]  # by flags and variables; whether one is a switch
OWN = ("load-on-startup", "stop-timeout", "dedup-cache-models")
_BEGINNING = "\0"  # of what stands before the first section


@dataclass(frozen=True)
class Preset:
    """flags  as of a command line;  at_start, dedup  those that are none of a command line's"""

    flags: tuple[str, ...] = ()
    at_start: bool = False
    dedup: bool = False


def read(path: str, parser: OptionParser) -> dict[str, Preset]:
    """Of each model by its name; `*` is in all of them already, but stands there too. OSError,
    ModelError for what is none of a preset's lines, with the file and the section."""
    found = configparser.ConfigParser(
        delimiters=("=",),
        comment_prefixes=(";", "#"),
        inline_comment_prefixes=None,
        strict=False,
        interpolation=None,
        default_section="\1",
        empty_lines_in_values=False,
    )
    found.optionxform = str  # type: ignore[assignment]  # keys as they are
    try:
        found.read_string(f"[{_BEGINNING}]\n{Path(path).read_text('utf-8')}", path)
    except (configparser.Error, UnicodeDecodeError) as e:
        raise ModelError(f"{path}: {' '.join(str(e).split())}") from None
    options = {
        key: (o, isinstance(f.default, bool) or bool(o.off))
        for _, f, o in parser.added
        for key in (*o.flags, *o.off, o.env)
    }
    lines = {name: [*found[name].items()] for name in found.sections() if name != _BEGINNING}
    for_all = lines.get(ALL, [])
    return {
        name: _preset(f"{path}: [{name}]", [*for_all, *own] if name != ALL else own, options)
        for name, own in lines.items()
    }


def _preset(where: str, lines: Iterable[tuple[str, str]], options: Options) -> Preset:
    own = dict.fromkeys(OWN, False)
    flags: list[str] = []
    key = value = ""
    try:
        for key, value in lines:
            if key in OWN:
                own[key] = key != "stop-timeout" and truth(value)
            else:
                flags += _flags(key, value, options)
    except ValueError as e:
        raise ModelError(f"{where}: {key} = {value}: {e}") from None
    return Preset(tuple(flags), own["load-on-startup"], own["dedup-cache-models"])


def _flags(key: str, value: str, options: Options) -> list[str]:
    """A line as words of a command line."""
    flag = next((f for f in (f"--{key}", f"-{key}", key) if key and f in options), None)
    if flag is None:
        raise ValueError("there is no such option; docs/options.md has those that there are")
    o, is_switch = options[flag]
    if not is_switch:
        return [o.flags[-1], value]
    if truth(value) == (flag not in o.off):
        return [o.flags[-1]]
    return [o.off[-1]] if o.off else []
