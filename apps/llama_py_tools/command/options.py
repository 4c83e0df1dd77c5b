"""Command line of options: flags, variables and help of every field of `llama_py.params`.

    parser = Parser("llama-py-cli")
    parser.add(ContextParams)           # -c N, --ctx-size N, LLAMA_ARG_CTX_SIZE=N, ...
    params = read(parser.parse_args(), ContextParams)

A command declares its specific options in its module. `--help` prints the common options of a
command, `--help all` every option in groups. This module does not import NumPy or a backend, so
`--help` is quick.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from copy import copy
from dataclasses import MISSING, Field, replace
from functools import partial
from typing import Any, TypeVar

from llama_py.params.near import FEW
from llama_py.params.option import PREFIX, Option, Params, get_options
from llama_py.params.texts import truth
from llama_py_tools.command.flags import exact_flags
from llama_py_tools.command.shell import SHELLS, Completion
from llama_py_tools.command.version import Version

P = TypeVar("P", bound=Params)

called_as = ""  # command name in help texts if it differs from the program: `llama-py bench`

OWN = ""  # place of the groups of a single command
# Groups in the order of `--help all` and docs/options.md.
GROUPS = (
    "model",
    "context",
    "threads",
    "adapters",
    "machines",
    "generation",
    "sampling",
    "speculative decoding",
    "images",
    "chat",
    OWN,
    "logging",
)
ALL = "all"
Common = Sequence[str | type[Params]]


def rank(group: str) -> int:
    """Return the place of a group among GROUPS."""
    return GROUPS.index(group if group in GROUPS else OWN)


def declaring(kind: type[Params], f: Field[Any]) -> type[Params]:
    """Return the base class of `kind` that declares a field."""
    return next(
        c for c in reversed(kind.__mro__) if f in getattr(c, "__dataclass_fields__", {}).values()
    )


class OptionParser(argparse.ArgumentParser):
    """Takes the options of dataclasses.

    added   every field that became an option, with the class that declares it
    others  names of subcommands, which are also the names of their modules
    common  options that --help prints, in order: flags, or classes; empty: all
    """

    def __init__(self, prog: str, common: Common = (), **how: Any) -> None:
        if called_as and prog.startswith("llama-py-"):
            prog = called_as
        super().__init__(
            prog,
            allow_abbrev=False,
            add_help=False,
            formatter_class=partial(_HelpFormatter, max_help_position=30),
            **how,
        )
        self.added: list[tuple[type[Params], Field[Any], Option]] = []
        self.others: Sequence[str] = ()
        self.common = common
        self._groups: dict[str, argparse._ArgumentGroup] = {}
        own = self._optionals  # without a check of `add_argument` that imports shutil
        own.add_argument(
            "-h",
            "--help",
            "--usage",
            action=_Help,
            nargs="?",
            choices=(ALL,),
            dest=argparse.SUPPRESS,
            default=argparse.SUPPRESS,
            metavar=ALL,
            help="print the common options, or all, and exit",
        )
        own.add_argument("--version", action=Version, help="print versions and exit")
        own.add_argument(
            "--completion",
            action=Completion,
            choices=SHELLS,
            dest=argparse.SUPPRESS,
            default=argparse.SUPPRESS,
            help="print a completion script for this shell and exit",
        )
        own.add_argument(
            "--completion-bash",
            action=Completion,
            nargs=0,
            dest=argparse.SUPPRESS,
            default=argparse.SUPPRESS,
            help="print a completion script for bash and exit",
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words that `exact_flags` has normalized, like argparse."""
        given = sys.argv[1:] if args is None else list(args)
        namespace = argparse.Namespace() if namespace is None else namespace
        namespace.flag_of = {f.name: o.flags[0] for _, f, o in self.added}
        return super().parse_known_args(exact_flags(self, given), namespace)

    def add(self, *kinds: type[Params], without: Container[str] = ()) -> None:
        """Add every field with flags of the dataclasses, except `without`, to the group of its
        class. A flag that another field has is shared."""
        for kind in kinds:
            for f, o in get_options(kind):
                if not o.flags or f.name in without:
                    continue
                if any(x in self.flags for x in o.flags):
                    o = replace(o, flags=tuple(x for x in o.flags if x not in self.flags))
                owner = declaring(kind, f)
                self.added.append((owner, f, o))
                group = self._group(owner.group_name())
                if isinstance(f.default, bool) or o.off:
                    self._add_switch(group, f, o)
                else:
                    _add_value(group, f, o)

    def _group(self, name: str) -> argparse._ArgumentGroup:
        if name not in self._groups:
            self._groups[name] = self.add_argument_group(name)
        return self._groups[name]

    def format_help(self) -> str:
        """Return the help text with the common options, or all if none are declared."""
        if not self.common:
            return self.format_all_help()
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        formatter.start_section("common options")
        formatter.add_arguments(list(self._common_actions()))
        formatter.end_section()
        formatter.add_text(f"--help {ALL} lists all {len(self.added)} options.")
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def format_all_help(self) -> str:
        """Return the help text with all options, in groups."""
        first = (self._positionals, self._optionals)
        self._action_groups.sort(key=lambda g: -1 if g in first else rank(g.title or OWN))
        return super().format_help()

    def _common_actions(self) -> Iterator[argparse.Action]:
        """Yield the common options with their main flags and the short form of their help."""
        actions = {name: a for a in self._actions for name in a.option_strings or (a.dest,)}
        added = {o.flags[0]: (f, o) for _, f, o in self.added}
        names = {flag: o.flags[0] for _, _, o in self.added for flag in o.flags}
        yield self._actions[0]
        for one in self.common:
            declared = () if isinstance(one, str) else get_options(one)
            flags = (
                one.split()
                if isinstance(one, str)
                else [o.flags[0] for _, o in declared if o.flags]
            )
            for flag in flags:
                f, o = added[names[flag]]
                action = copy(actions[flag])
                action.option_strings = main_flags(o) if action.option_strings else []
                action.help = _summary(f, o).replace("%", "%%")
                yield action

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write help, and raise OSError if stdout is full or closed; argparse ignores that."""
        if file is None or file is not sys.stdout:
            super()._print_message(message, file)
        else:
            file.write(message)

    @property
    def flags(self) -> Container[str]:
        """All flags declared until now."""
        return self._option_string_actions

    def _add_switch(self, group: argparse._ArgumentGroup, f: Field[Any], o: Option) -> None:
        given = os.environ.get(o.env)
        try:
            default = None if given is None else truth(given)
            if o.off and o.env and _negated_name(o.env) in os.environ:
                default = False
        except ValueError as e:
            self.error(f"{o.env}: {e}")
        how: dict[str, Any] = {"dest": f.name, "action": "store_const", "default": default}
        group.add_argument(*o.flags, const=True, help=_help(f, o), **how)
        if o.off:
            group.add_argument(*o.off, const=False, help=f"disable {main_flags(o)[-1]}", **how)


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formats an option as `-m, --model FILE`, with its value once; breaks no flag in its help."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        from textwrap import wrap

        return wrap(text, width, break_on_hyphens=False)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class _Help(argparse.Action):
    """Prints the common options, or all options with the value `all`, and ends the command."""

    def __call__(self, parser: Any, args: Any, value: Any, flag: Any = None) -> None:
        text = parser.format_all_help() if value == ALL else parser.format_help()
        parser._print_message(text, sys.stdout)
        parser.exit()


def main_flags(o: Option) -> list[str]:
    """Return the first flag, and the first long one."""
    long = [flag for flag in o.flags if flag.startswith("--")]
    return list(dict.fromkeys((o.flags[0], *long[:1])))


def _negated_name(variable: str) -> str:
    """Return the variable that disables an option (common_arg::get_value_from_env)."""
    return variable.replace(PREFIX, f"{PREFIX}NO_")


def read(args: argparse.Namespace, kind: type[P]) -> P:
    """Return the dataclass filled from parsed arguments; missing fields keep their defaults."""
    values = {
        f.name: tuple(value) if isinstance(value, list) else value
        for f, o in get_options(kind)
        if o.flags and (value := getattr(args, f.name, None)) is not None
    }
    return kind(**values)


def _add_value(group: argparse._ArgumentGroup, f: Field[Any], o: Option) -> None:
    how: dict[str, Any] = {"dest": f.name} if o.flags[0].startswith("-") else {}
    group.add_argument(
        *o.flags,
        type=converter(o),
        action=_Extend if o.many else "store",
        nargs=o.nargs,
        default=os.environ.get(o.env),
        metavar=o.metavar,
        help=_help(f, o),
        **how,
    )


def _help(f: Field[Any], o: Option) -> str:
    details = "".join(o.help.partition("; ")[1:])
    variable = f" [{o.env}]" if o.env else ""
    return f"{_summary(f, o)}{details}{variable}".replace("%", "%%")


def _summary(f: Field[Any], o: Option) -> str:
    """Return the help before the details, with the default in parentheses."""
    text, default = o.help.partition("; ")[0], "on" if f.default is True else default_text(f)
    if not default or "default:" in o.help:
        return text
    if text.endswith(")") and ": " in text.rpartition("(")[2]:
        return f"{text.removesuffix(')')}, default: {default})"
    return f"{text} (default: {default})"


def default_text(f: Field[Any]) -> str:
    """Return the help text of a default; "" for a switch, or an empty default."""
    if isinstance(f.default, bool):
        return ""
    values = f.default if isinstance(f.default, (tuple, frozenset)) else (f.default,)
    shown = ",".join(_show_value(value) for value in values if value not in (None, MISSING))
    return shown.replace("\n", r"\n")


def _show_value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def converter(o: Option) -> Callable[[str], Any]:
    """Return a converter of text to the field's value, with one plain error sentence for
    argparse."""

    def convert(text: str) -> Any:
        try:
            value = o.parse(text)
        except ValueError as e:
            raise argparse.ArgumentTypeError(str(e)) from None
        if o.check is not None and value is not None and not o.check.holds(value):
            hint = o.check.hint(value)
            where = (
                f"{'' if hint else ';'} --help {ALL} lists them" if len(o.check.words) > FEW else ""
            )
            raise argparse.ArgumentTypeError(f"must be {o.check.text}, got {text}{hint}{where}")
        return value

    return convert


class _Extend(argparse.Action):
    """Put tuples or dicts together; the environment's, a text, gives way to the first given."""

    def __call__(self, parser: Any, args: Any, value: Any, flag: Any = None) -> None:
        found = getattr(args, self.dest)
        if isinstance(found, type(value)):
            value = {**found, **value} if isinstance(value, dict) else found + value
        setattr(args, self.dest, value)
