"""Shell completion by `--completion bash|zsh|fish`: a script for a command's flags and values.

    eval "$(llama-py-cli --completion bash)"
    llama-py-cli --completion fish > ~/.config/fish/completions/llama-py-cli.fish

The script is generated from the declarations. It completes the choices of an option, and file names
if the help names a FILE, but no other values. Subcommands such as `llama-py-cli cache` have
separate flags.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from llama_py_tools.commands import COMMANDS

SHELLS = ("bash", "zsh", "fish")
FILES = "<files>"


class Completion(argparse.Action):
    """Prints a script and ends the command; a flag that names no shell is bash's."""

    def __call__(self, parser: Any, namespace: Any, values: Any, flag: Any = None) -> None:
        print(script(parser, values or "bash"), end="")
        parser.exit()


class Flag(NamedTuple):
    """One spelling of an option. values: words that may follow, FILES, "" for some other value, or
    None for a switch."""

    name: str
    help: str
    values: str | None


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script for one of SHELLS."""
    commands = {word: list(_flags(p)) for word, p in _commands(parser).items()}
    make = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]
    return make(parser.prog, {"": list(_flags(parser)), **commands})


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return parsers by the first word that selects them."""
    found = {word: COMMANDS[word].load().parser() for word in getattr(parser, "others", ())}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= action.choices
    return found


def _flags(parser: argparse.ArgumentParser) -> Iterator[Flag]:
    added = getattr(parser, "added", ())
    choices = {flag: " ".join(o.choices) for _, _, o in added for flag in o.flags}
    for action in parser._actions:
        about = (action.help or "").partition("; ")[0].replace("%%", "%")
        for name in action.option_strings:
            yield Flag(name, about, choices.get(name) or _values(action))


def _values(action: argparse.Action) -> str | None:
    if action.nargs == 0:
        return None
    if action.choices is not None:
        return " ".join(map(str, action.choices))
    metavar = action.metavar
    if not isinstance(metavar, str):
        return ""
    if metavar.startswith(("FILE", "DIR")):
        return FILES
    words = metavar.split("|")
    return " ".join(words) if all(re.fullmatch(r"[a-z0-9_+-]+", w) for w in words) else ""


def _by_values(flags: list[Flag]) -> dict[str, list[str]]:
    """Group the flags by the type of their values."""
    found: dict[str, list[str]] = {}
    for flag in flags:
        if flag.values is not None:
            found.setdefault(flag.values, []).append(flag.name)
    return found


def _bash(prog: str, commands: Mapping[str, list[Flag]]) -> str:
    name = "_" + re.sub(r"\W", "_", prog)
    words = " ".join(filter(None, commands))
    lines = [
        f"{name}() {{",
        '    local cur="${COMP_WORDS[COMP_CWORD]}"',
        '    local prev="${COMP_WORDS[COMP_CWORD-1]}"',
        "    COMPREPLY=()",
        '    case "${COMP_WORDS[1]}" in',
    ]
    for word, flags in reversed([*commands.items()]):
        lines.append(f"    {word or '*'})")
        lines.append('        case "$prev" in')
        for values, names in _by_values(flags).items():
            lines.append(f"        {'|'.join(names)})")
            if values:
                how = "-f" if values == FILES else f"-W '{values}'"
                lines.append(f'            COMPREPLY=($(compgen {how} -- "$cur"))')
            if values == FILES:
                lines.append("            compopt -o filenames 2> /dev/null")
            lines.append("            return ;;")
        lines.append("        esac")
        offered = " ".join(flag.name for flag in flags)
        lines.append(f'        local offered="{offered}"')
        if words and not word:
            lines.append(f'        [ "$COMP_CWORD" = 1 ] && offered="{words} $offered"')
        lines.append("        ;;")
    lines += [
        "    esac",
        '    COMPREPLY=($(compgen -W "$offered" -- "$cur"))',
        "}",
        f"complete -F {name} {prog}",
    ]
    return "\n".join(lines) + "\n"


def _zsh(prog: str, commands: Mapping[str, list[Flag]]) -> str:
    name = "_" + re.sub(r"\W", "_", prog)
    words = " ".join(filter(None, commands))
    lines = [f"#compdef {prog}", f"{name}() {{", "    local -a flags", '    case "${words[2]}" in']
    for word, flags in reversed([*commands.items()]):
        lines.append(f"    {word or '*'})")
        lines.append('        case "${words[CURRENT-1]}" in')
        for values, names in _by_values(flags).items():
            do = {FILES: "_files", "": "_message value"}.get(values, f"compadd -- {values}")
            lines.append(f"        {'|'.join(names)}) {do}; return ;;")
        lines.append("        esac")
        if words and not word:
            lines.append(f"        (( CURRENT == 2 )) && compadd -- {words}")
        each = " ".join(_quote(f"{f.name}:{f.help}", ":") for f in flags)
        lines.append(f"        flags=({each}) ;;")
    called = f'[ "$funcstack[1]" = "{name}" ]'
    lines += [
        "    esac",
        "    _describe -o option flags",
        "}",
        f'if {called}; then {name} "$@"; else compdef {name} {prog}; fi',
    ]
    return "\n".join(lines) + "\n"


def _quote(text: str, escaped: str = "") -> str:
    """Quote a text; the first of the marks `escaped` ends a name, others are literal."""
    if escaped:
        name, mark, rest = text.partition(escaped)
        text = name + mark + rest.replace(escaped, f"\\{escaped}")
    return "'" + text.replace("'", "'\\''") + "'"


def _fish(prog: str, commands: Mapping[str, list[Flag]]) -> str:
    words = " ".join(filter(None, commands))
    lines = [f"complete -c {prog} -f"]
    if words:
        lines.append(f"complete -c {prog} -n __fish_use_subcommand -a '{words}'")
    for word, flags in commands.items():
        where = f"__fish_seen_subcommand_from {word}" if word else ""
        if words and not word:
            where = f"not __fish_seen_subcommand_from {words}"
        for flag in flags:
            long = flag.name.startswith("--")
            short = "s" if len(flag.name) == 2 else "o"
            parts = [
                f"complete -c {prog}",
                f"-n '{where}'" if where else "",
                f"-{'l' if long else short} {flag.name.lstrip('-')}",
                _fish_values(flag.values),
                f"-d {_quote(flag.help)}",
            ]
            lines.append(" ".join(filter(None, parts)))
    return "\n".join(lines) + "\n"


def _fish_values(values: str | None) -> str:
    if values is None:
        return ""
    return {FILES: "-r -F", "": "-x"}.get(values, f"-x -a '{values}'")
