"""An option is declared once: a field of a frozen dataclass, with flags, variable, help and check.

    class ContextParams(Params):
        n_ubatch: int = option(512, "-ub --ubatch-size", "maximum tokens per ubatch", env="UBATCH")

`ContextParams(n_ubatch="all")` raises, and commands take `-ub N`, `--ubatch-size N` and
LLAMA_ARG_UBATCH=N (llama_py_tools.command.options). This module does not import NumPy or a backend,
which makes --help fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from ggml_py.errors import GGMLError, ModelError
from llama_py.params.rules import ValueRule, choice_rule, integers, numbers

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**how):
        return lambda cls: cls


PREFIX = "LLAMA_ARG_"  # prefix of variables
_CALLED: dict[str, type[Params]] = {}
_CHECK: dict[type, ValueRule] = {
    int: integers(),
    float: numbers(),
    bool: choice_rule((True, False)),
}


@dataclass(frozen=True)
class Option:
    """Declaration of an option, without name, type and default.

    flags    empty: only for Python; a flag without a dash: a positional argument
    help     a noun phrase or an imperative, with special values in parentheses; details follow a
             `; `, which the help of common options and shell completion omit
    env      environment variable, or ""
    check    rule for the value, unless it is the default
    parse    text -> value; raises ValueError with the problem
    metavar  placeholder for the value in the help
    off      flags that make a bool False
    many     the flag may be repeated: values of `parse`, a tuple or dict, are combined
    choices  complete list of allowed texts, if any
    nargs    number of words of the flag, like in argparse; such a flag has no variable
    secret   the value is never printed in a response, a log or a repr
    """

    flags: tuple[str, ...]
    help: str
    env: str
    check: ValueRule | None
    parse: Callable[[str], Any]
    metavar: str | tuple[str, ...]
    off: tuple[str, ...] = ()
    many: bool = False
    nargs: int | str | None = None
    choices: tuple[str, ...] = ()
    secret: bool = False


def option(
    default: Any,
    flags: str,
    help: str,
    *,
    off: str = "",
    env: str | None = None,
    check: ValueRule | None = None,
    choices: Sequence[Any] = (),
    metavar: Any = "",
    parse: Callable[[str], Any] | None = None,
    many: bool = False,
    nargs: int | str | None = None,
    secret: bool = False,
) -> Any:
    """Declare a field. `flags` and `off` are separated by spaces; a default that is a type is
    called.

    env    the name after LLAMA_ARG_, if it differs from the longest `--flag`; with a leading `/`
           the whole name
    check  default: an integer, a number or a bool, like the field's default
    choices  a check by values, which the help shows
    """
    names = tuple(flags.split())
    check = choice_rule(choices) if choices else check or _CHECK.get(type(default))
    long = max(names, key=len, default="")
    if env is None:
        env = long[2:].replace("-", "_").upper() if long.startswith("--") and not nargs else ""
    declared = Option(
        names,
        help,
        _variable(env),
        check,
        parse or (check.parse if check else str),
        metavar or "|".join(map(str, choices)) or "N",
        tuple(off.split()),
        many,
        nargs,
        tuple(one for one in choices if isinstance(one, str)),
        secret,
    )
    made: dict[str, Any] = {"default_factory" if isinstance(default, type) else "default": default}
    return field(**made, repr=not secret, metadata={"option": declared})


def _variable(name: str) -> str:
    if name.startswith("/"):
        return name[1:]
    return f"{PREFIX}{name}" if name else ""


def get_options(kind: type[Params]) -> list[tuple[Field[Any], Option]]:
    """Return the fields with their declarations."""
    return [(f, f.metadata["option"]) for f in fields(kind)]


def _flags(kind: type[Params]) -> dict[str, tuple[str, ...]]:
    return {f.name: o.flags for f, o in get_options(kind)}


@dataclass_transform(kw_only_default=True, frozen_default=True)
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Params:
    """Base class of options: values are checked as declared, with errors of a class. Subclasses
    become frozen dataclasses with keyword arguments.

    call   the function that takes these options, for errors about options of other functions
    group  title of the options in the help of commands; default: from the name of the class
    """

    error: ClassVar[type[GGMLError]] = ModelError
    call: ClassVar[str] = ""
    group: ClassVar[str] = ""

    @classmethod
    def group_name(cls) -> str:
        """Return the title of the options in the help of commands."""
        return cls.group or cls.__name__.removesuffix("Params").lower()

    def __init_subclass__(cls) -> None:
        """Make a dataclass, with the help lines in its docstring."""
        if "call" in vars(cls):
            _CALLED[cls.call] = cls
        lines = [
            f"{name:<16} {value.metadata['option'].help}"
            for name, value in vars(cls).items()
            if isinstance(value, Field)
        ]
        cls.__doc__ = "\n".join([f"{cls.__doc__ or cls.__name__}\n", *lines])
        # The methods here serve all fields; one of each class would be compiled at every start.
        dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __new__(cls, **given: Any) -> Self:
        """Raise TypeError for an unknown name, with the name that was perhaps meant."""
        for name in given:
            if name not in cls.__dataclass_fields__:
                from llama_py.params.other_names import suggest_option

                names = {call: _flags(kind) for call, kind in _CALLED.items()}
                hint = suggest_option(name, _flags(cls), names)
                raise TypeError(f"unknown option {name!r}{'; ' if hint else ''}{hint}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for f, o in get_options(type(self)):
            value = getattr(self, f.name)
            if o.check is not None and value is not f.default and not o.check.holds(value):
                rule = f"{o.check.text}{' or None' if f.default is None else ''}"
                raise self.error(f"{f.name} must be {rule}, got {value!r}{o.check.hint(value)}")
