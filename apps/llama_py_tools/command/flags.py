"""Parsing of flags like llama.cpp: a word is a flag only as a whole, and the next word is its
value.

argparse alone takes `-np 2` for `-n p`, `-hf x` for `-h -f x`, and refuses `-p "-5 degrees"`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from llama_py.params.near import nearest

END = "--"  # words after it are not flags


def exact_flags(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return the words with values joined to their flags (`-p=text`) and flags as declared (`_` for
    `-` in long flags). An unknown flag is a usage error: exit 2.
    """
    flags = parser._option_string_actions
    commands = any(isinstance(a, argparse._SubParsersAction) for a in parser._actions)
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        name, value = _split_flag(flags, word)
        if word == END or (commands and not word.startswith("-")):
            return [*found, word, *rest]  # the subcommand's parser reads its flags
        if name is None:
            if _looks_like_a_flag(word):
                parser.error(_unknown(flags, word))
            found.append(word)
        elif value is not None or flags[name].nargs is not None:
            found.append(name if value is None else f"{name}={value}")
        else:
            found += _with_value(flags, name, next(rest, None))
    return found


def _split_flag(flags: Mapping[str, argparse.Action], word: str) -> tuple[str | None, str | None]:
    """Return the flag and the value after its `=`; a flag may itself contain one."""
    for name, sign, value in ((word, "", ""), word.partition("=")):
        same = name.replace("_", "-") if name.startswith("--") else name
        for one in (name, same):
            if one in flags:
                return one, value if sign else None
    return None, None


def _with_value(flags: Mapping[str, argparse.Action], name: str, value: str | None) -> list[str]:
    """Return flag and value; if the value is a flag itself, only the flag, so that argparse reports
    it."""
    if value is None:
        return [name]
    return [name, value] if _split_flag(flags, value)[0] else [f"{name}={value}"]


def _looks_like_a_flag(word: str) -> bool:
    """Return True for a flag, not a negative number, a text with spaces, or the dash for stdin."""
    return len(word) > 1 and word[0] == "-" and " " not in word and not _is_number(word)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _unknown(flags: Mapping[str, argparse.Action], word: str) -> str:
    name = word.partition("=")[0].replace("_", "-")
    flag = word.rstrip("0123456789.")
    if flag in flags:  # other programs accept a value without a space
        return f"unknown option {name}; did you mean {flag} {word.removeprefix(flag)}?"
    bare = {flag.lstrip("-"): flag for flag in flags}
    near = [bare[word] for word in nearest(name.lstrip("-"), bare, 0.7)]
    hint = f"did you mean {' or '.join(near)}?" if near else "--help all lists the options"
    return f"unknown option {name}; {hint}"
