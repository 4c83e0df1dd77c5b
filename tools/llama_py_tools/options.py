"""The command line of options: flags, variables and help of every field of `llama_py.params`.

    parser = Parser("llama-py-cli")
    parser.add(ContextParams)           # -c N, --ctx-size N, LLAMA_ARG_CTX_SIZE=N, ...
    params = read(parser.parse_args(), ContextParams)

A command declares what only it takes in the same way, in its own module. Nothing here imports NumPy
or a backend, so `--help` is quick.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Container
from dataclasses import Field
from typing import Any, TypeVar

from llama_py.params import Option, Params, options_of
from llama_py.params.texts import truth

P = TypeVar("P", bound=Params)


class Parser(argparse.ArgumentParser):
    """Takes the options of dataclasses.

    added  every field that became an option
    """

    def __init__(self, prog: str, **how: Any) -> None:
        super().__init__(
            prog, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **how
        )
        self.added: list[tuple[type[Params], Field[Any], Option]] = []

    def add(
        self, kind: type[Params], only: Container[str] = (), without: Container[str] = ()
    ) -> None:
        """Every field of the dataclass that has flags, or of these fields, as an option group."""
        group = self.add_argument_group(kind.__name__.removesuffix("Params").lower())
        for f, o in options_of(kind):
            if not o.flags or f.name in without or (only and f.name not in only):
                continue
            self.added.append((kind, f, o))
            if isinstance(f.default, bool) or o.off:
                self._add_switch(group, f, o)
            else:
                _add_value(group, f, o)

    def _add_switch(self, group: argparse._ArgumentGroup, f: Field[Any], o: Option) -> None:
        given = _from_environment(o)
        try:
            default = None if given is None else truth(given)
        except ValueError as e:
            self.error(f"{o.env}: {e}")
        for flags, value, help in (
            (o.flags, True, _help(o)),
            (o.off, False, f"the opposite of {o.flags[-1]}"),
        ):
            if flags:
                group.add_argument(
                    *flags, dest=f.name, action="store_const", const=value, default=default,
                    help=help,
                )  # fmt: skip


def read(args: argparse.Namespace, kind: type[P]) -> P:
    """The dataclass filled from parsed arguments; what was not given keeps its default."""
    values = {
        f.name: tuple(value) if isinstance(value, list) else value
        for f, o in options_of(kind)
        if o.flags and (value := getattr(args, f.name, None)) is not None
    }
    return kind(**values)


def _add_value(group: argparse._ArgumentGroup, f: Field[Any], o: Option) -> None:
    how: dict[str, Any] = {} if is_positional(o) else {"dest": f.name}
    shown = default_text(f)
    group.add_argument(
        *o.flags,
        type=_converter(o),
        action=_Extend if o.many else "store",
        default=_from_environment(o),
        nargs=o.nargs,
        metavar=o.metavar,
        help=_help(o, f" (default: {shown})" if shown else ""),
        **how,
    )


def is_positional(o: Option) -> bool:
    return not o.flags[0].startswith("-")


def default_text(f: Field[Any]) -> str:
    """What the help says of a default; nothing where it is empty or not told by a value."""
    if isinstance(f.default, (int, float, str, tuple)) and not isinstance(f.default, bool):
        values = f.default if isinstance(f.default, tuple) else (f.default,)
        return ",".join(map(str, values))
    return ""


def _help(o: Option, tail: str = "") -> str:
    variable = f" [{o.env}]" if o.env else ""
    return f"{o.help}{tail}{variable}".replace("%", "%%")


def _from_environment(o: Option) -> str | None:
    return os.environ.get(o.env) if o.env else None


def _converter(o: Option) -> Callable[[str], Any]:
    """Text to the field's value, with one plain sentence for argparse where it is wrong."""

    def convert(text: str) -> Any:
        try:
            value = o.parse(text)
        except ValueError as e:
            raise argparse.ArgumentTypeError(str(e)) from None
        if o.check is not None and value is not None and not o.check.holds(value):
            raise argparse.ArgumentTypeError(f"must be {o.check}, got {text}")
        return value

    return convert


class _Extend(argparse.Action):
    """Put tuples or dicts together; the environment's, a text, gives way to the first given."""

    def __call__(self, parser: Any, args: Any, value: Any, flag: Any = None) -> None:
        found = getattr(args, self.dest)
        if isinstance(found, type(value)):
            value = {**found, **value} if isinstance(value, dict) else found + value
        setattr(args, self.dest, value)
