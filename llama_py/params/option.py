"""An option is declared once: a dataclass field with its flags, variable, help and check.

    @dataclass(frozen=True, kw_only=True)
    class ContextParams(Params):
        n_batch: int = option(
            2048, "-b", "--batch-size", env="LLAMA_ARG_BATCH", check=Integers(1),
            help="tokens of one logical batch",
        )

`ContextParams(n_batch=0)` raises, and commands take `-b N`, `--batch-size N`, LLAMA_ARG_BATCH=N
(llama_py_tools.options). Nothing here imports NumPy or a backend, so that --help is quick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar

from ggml_py.errors import GGMLError, ModelError
from llama_py.params.rules import Integers, Numbers, OneOf, Rule
from llama_py.params.texts import integer, number

_CHECK: dict[type, Rule] = {int: Integers(), float: Numbers(), bool: OneOf((True, False))}


@dataclass(frozen=True)
class Option:
    """What is known of a field besides name, type and default.

    flags    none: only for Python; one without a dash: an argument by its place
    off      flags that make a bool False
    env      the variable; None: there is none
    metavar  what stands for the value in the help
    parse    text -> value; ValueError says what is wrong
    check    what the value must be, unless it is the default
    many     the flag may be given again: values of `parse`, a tuple or dict, are put together
    nargs    how many words the flag takes, as argparse has it
    """

    flags: tuple[str, ...]
    help: str
    off: tuple[str, ...]
    env: str | None
    metavar: str | tuple[str, ...]
    parse: Callable[[str], Any]
    check: Rule | None
    many: bool
    nargs: int | str | None


def option(
    default: Any, *flags: str, help: str, off: Sequence[str] = (), env: str | None = None,
    metavar: str | tuple[str, ...] = "", parse: Callable[[str], Any] | None = None,
    check: Rule | None = None, choices: Sequence[Any] = (), many: bool = False,
    nargs: int | str | None = None,
) -> Any:  # fmt: skip
    """A field: the arguments are those of `Option`. Of a type as default (`dict`) an instance is.

    If no check is named, the default tells: an integer, a number, a bool. `choices` are a check,
    and shown in the help. What is checked as a number is parsed as one.
    """
    kind = type(default)
    check = OneOf(choices) if choices else check or _CHECK.get(kind)
    if parse is None and isinstance(check, Numbers):
        parse = integer if isinstance(check, Integers) else number
    declared = Option(
        flags, help, tuple(off), env, metavar or "|".join(map(str, choices)) or "N", parse or str,
        check, many, nargs,
    )  # fmt: skip
    metadata = {"option": declared}
    if kind is type:
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def options_of(kind: type[Params]) -> list[tuple[Field[Any], Option]]:
    """The fields, and what is declared of each."""
    return [(f, f.metadata["option"]) for f in fields(kind)]


@dataclass(frozen=True, kw_only=True)
class Params:
    """Base of what is made of options: values are checked as declared, with errors of a class."""

    error: ClassVar[type[GGMLError]] = ModelError

    def __init_subclass__(cls) -> None:
        """The help lines are also the documentation of the fields."""
        lines = [
            f"{name:<16} {value.metadata['option'].help}"
            for name, value in vars(cls).items()
            if isinstance(value, Field)
        ]
        cls.__doc__ = "\n".join([f"{cls.__doc__ or cls.__name__}\n", *lines])

    def __post_init__(self) -> None:
        for f, o in options_of(type(self)):
            value = getattr(self, f.name)
            if o.check is not None and value is not f.default and not o.check.holds(value):
                rule = f"{o.check} or None" if f.default is None else o.check
                raise self.error(f"{f.name} is {value!r}; it must be {rule}")
