"""Command line of options: flags, variables and help of every field of `llama_py.params`.

    parser = Parser("llama-py-cli")
    parser.add(ContextParams)           # -c N, --ctx-size N, LLAMA_ARG_CTX_SIZE=N, ...
    params = read(parser.parse_args(), ContextParams)

A command declares its specific options in the same way, in its module. This module does not import
NumPy or a backend, so `--help` is quick.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Container, Sequence
from dataclasses import MISSING, Field, replace
from typing import Any, TypeVar

from llama_py.params.near import FEW
from llama_py.params.option import PREFIX, Option, Params, options_of
from llama_py.params.texts import truth
from llama_py_tools.command.flags import exact_flags
from llama_py_tools.command.shell import SHELLS, Completion
from llama_py_tools.command.version import Version

P = TypeVar("P", bound=Params)

called_as = ""  # command name in help texts if it differs from the program: `llama-py bench`


class OptionParser(argparse.ArgumentParser):
    """Takes the options of dataclasses.

    added   every field that became an option
    others  names of subcommands, which are also the names of their modules
    """

    def __init__(self, prog: str, **how: Any) -> None:
        if called_as and prog.startswith("llama-py-"):
            prog = called_as
        super().__init__(
            prog,
            allow_abbrev=False,
            add_help=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **how,
        )
        self.added: list[tuple[type[Params], Field[Any], Option]] = []
        self.others: Sequence[str] = ()
        self.add_argument("-h", "--help", "--usage", action="help", help="show this and exit")
        self.add_argument("--version", action=Version, help="show versions and exit")
        self.add_argument(
            "--completion",
            action=Completion,
            choices=SHELLS,
            dest=argparse.SUPPRESS,
            default=argparse.SUPPRESS,
            help="print a script that lets this shell complete flags",
        )
        self.add_argument(
            "--completion-bash",
            action=Completion,
            nargs=0,
            dest=argparse.SUPPRESS,
            default=argparse.SUPPRESS,
            help="the same as --completion bash",
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words that `exact_flags` has normalized, like argparse."""
        given = sys.argv[1:] if args is None else list(args)
        namespace = argparse.Namespace() if namespace is None else namespace
        namespace.flag_of = {f.name: o.flags[0] for _, f, o in self.added}
        return super().parse_known_args(exact_flags(self, given), namespace)

    def add(self, *kinds: type[Params], without: Container[str] = ()) -> None:
        """Add every field with flags of the dataclasses, except `without`; each class is a group. A
        flag that another field has is shared."""
        for kind in kinds:
            group = self.add_argument_group(kind.__name__.removesuffix("Params").lower())
            for f, o in options_of(kind):
                if not o.flags or f.name in without:
                    continue
                o = replace(o, flags=tuple(x for x in o.flags if x not in self.flags))
                self.added.append((kind, f, o))
                if isinstance(f.default, bool) or o.off:
                    self._add_switch(group, f, o)
                else:
                    _add_value(group, f, o)

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
            if o.off and o.env and _negated(o.env) in os.environ:
                default = False
        except ValueError as e:
            self.error(f"{o.env}: {e}")
        how: dict[str, Any] = {"dest": f.name, "action": "store_const", "default": default}
        group.add_argument(*o.flags, const=True, help=_help(f, o), **how)
        if o.off:
            group.add_argument(*o.off, const=False, help=f"the opposite of {o.flags[-1]}", **how)


def _negated(variable: str) -> str:
    """Return the variable that disables an option (common_arg::get_value_from_env)."""
    return variable.replace(PREFIX, f"{PREFIX}NO_")


def read(args: argparse.Namespace, kind: type[P]) -> P:
    """Return the dataclass filled from parsed arguments; missing fields keep their defaults."""
    values = {
        f.name: tuple(value) if isinstance(value, list) else value
        for f, o in options_of(kind)
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
    default, variable = default_text(f), f" [{o.env}]" if o.env else ""
    shown = f" (default: {default})" if default else ""
    return f"{o.help}{shown}{variable}".replace("%", "%%")


def default_text(f: Field[Any]) -> str:
    """Return the help text of a default; "" for a switch, or an empty default."""
    if isinstance(f.default, bool):
        return ""
    values = f.default if isinstance(f.default, tuple) else (f.default,)
    shown = ",".join(str(value) for value in values if value not in (None, MISSING))
    return shown.replace("\n", r"\n")


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
            where = f"{'' if hint else ';'} --help lists all" if len(o.check.words) > FEW else ""
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
