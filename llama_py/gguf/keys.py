"""Reading of metadata: typed getters that name the key in every error, and declared fields that are
declared with their key and check.

    class Sizes(Declared):
        n_embd: int = uint("embedding_length", least=1)
        n_ff: tuple[int, ...] = uints("feed_forward_length", 0)       # a value of each layer
        f_norm_eps: float = number("attention.layer_norm_epsilon", 1e-5, least=0)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import getattr_static
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from ggml_py._moved import former_names
from ggml_py.errors import HParamsError
from llama_py.gguf.metadata import Metadata

_MAX_UINT = 2**32 - 1
_MAX_FLOAT = 3.4028234e38  # largest f32, the type of ops' parameters

LOWEST_BASE, HIGHEST_BASE = 1e-30, 1e30  # limits of RoPE's frequency base and scale
END_OF_POSITIONS = 2**31 - 1  # positions have 32 bits

T = TypeVar("T")
Counts = Literal["", "all", "first", "last"]


class Keys:
    """Typed getters for metadata; `key` is written without the architecture's prefix, or with a
    leading "/" if it has no prefix.

    A getter with a default makes the key optional. Each raises HParamsError, which has the full key
    and its value, for a missing key, a wrong type and an invalid value.
    """

    def __init__(self, metadata: Mapping[str, Any], arch: str) -> None:
        self.metadata = metadata
        self.arch = arch
        self.per_layer: set[str] = set()  # full keys with one value per layer
        self.read: set[str] = set()  # full keys that a getter read, present or not

    def full(self, key: str) -> str:
        """Return the full key in the file, and record that it is read."""
        full_key = key[1:] if key.startswith("/") else f"{self.arch}.{key}"
        self.read.add(full_key)
        return full_key

    def get_value(self, key: str, default: Any = None) -> Any:
        """Return the value as it is in the file."""
        return self.metadata.get(self.full(key), default)

    def has(self, key: str) -> bool:
        return self.full(key) in self.metadata

    def is_array(self, key: str) -> bool:
        """Return True if the key has one value per layer."""
        return isinstance(self.get_value(key), list | np.ndarray)

    def uint(self, key: str, default: int | None = None) -> int:
        return self.scalar(key, default, as_uint)

    def number(self, key: str, default: float | None = None) -> float:
        return self.scalar(key, default, as_float)

    def flag(self, key: str, default: bool | None = None) -> bool:
        return self.scalar(key, default, as_bool)

    def text(self, key: str, default: str | None = None) -> str:
        return self.scalar(key, default, as_str)

    def uints(self, key: str, n: int, default: int | None = None) -> tuple[int, ...]:
        """Read n values: an array of n, or one number for all."""
        return self.values(key, n, default, as_uint)

    def flags(
        self, key: str, n: int, default: bool | None = None, longer: bool = True
    ) -> tuple[bool, ...]:
        """Return n flags, one per layer, from an array or from one flag for all layers.

        longer: Accept arrays of more than n flags, like llama.cpp's `get_arr`.
        """
        self.per_layer.add(self.full(key))
        return self.values(key, n, default, as_bool, longer)

    def count(self, key: str) -> int:
        """Return the number of items of an array; 0 if it is missing."""
        if isinstance(self.metadata, Metadata):
            return self.metadata.count(self.full(key))
        value = self.get_value(key)
        return len(value) if isinstance(value, list | np.ndarray) else 0

    def error(self, key: str, message: str) -> HParamsError:
        """Return an error about `key` that shows its value; `message` starts with "must"."""
        full_key = self.full(key)
        value = self.metadata.get(full_key)
        shown = "but is missing" if value is None else f"got {_shorten(value)}"
        return HParamsError(f"{full_key} {message}, {shown}; convert the model again")

    def scalar(self, key: str, default: T | None, convert: Callable[[Any], T | None]) -> T:
        value = convert(self._get(key, default))
        if value is None:
            raise self.error(key, f"must be {_MEANING[convert]}")
        return value

    def values(
        self,
        key: str,
        n: int,
        default: T | None,
        convert: Callable[[Any], T | None],
        longer: bool = False,
    ) -> tuple[T, ...]:
        raw = self._get(key, default)
        if not isinstance(raw, list | np.ndarray):
            return (self.scalar(key, default, convert),) * n
        if longer:  # llama.cpp copies the first n
            raw = raw[:n]
        if convert in (as_uint, as_int):  # llama.cpp reads flags as 0 and 1
            raw = [int(x) if isinstance(x, bool | np.bool_) else x for x in raw]
        if len(raw) != n:
            raise self.error(key, f"must have {n} items instead of {len(raw)}")
        values = tuple(v for item in raw if (v := convert(item)) is not None)
        if len(values) != n:
            raise self.error(key, f"items must each be {_MEANING[convert]}")
        return values

    def _get(self, key: str, default: T | None) -> Any:
        value = self.get_value(key, default)
        if value is None:
            raise HParamsError(
                f"{self.full(key)} is missing, which a model of architecture {self.arch!r} "
                "needs; convert the model again"
            )
        return value


def as_uint(value: Any) -> int | None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return int(value) if whole and 0 <= value <= _MAX_UINT else None


def as_int(value: Any) -> int | None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return int(value) if whole else None


def as_float(value: Any) -> float | None:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    fits = number and math.isfinite(value) and abs(value) <= _MAX_FLOAT
    return float(value) if fits else None


def as_base(value: Any) -> float | None:
    """Convert a base of powers; its inverse must also be exact enough in f32."""
    base = as_float(value)
    return base if base is not None and LOWEST_BASE <= base <= HIGHEST_BASE else None


def as_divisor(value: Any) -> float | None:
    """Convert zero, which disables the divisor, or a number with an inverse in f32."""
    number = as_float(value)
    return number if number is not None and (not number or abs(number) >= LOWEST_BASE) else None


def as_bool(value: Any) -> bool | None:
    flag = isinstance(value, bool | np.bool_) or as_uint(value) in (0, 1)
    return bool(value) if flag else None


def as_str(value: Any) -> str | None:
    return value if isinstance(value, str) else None


_MEANING: dict[Any, str] = {
    as_uint: "an integer from 0 to 2^32 - 1",
    as_int: "an integer",
    as_float: "a finite number",
    as_base: f"a positive finite number from {LOWEST_BASE} to {HIGHEST_BASE}",
    as_divisor: f"0 or a finite number of at least {LOWEST_BASE}",
    as_bool: "true or false",
    as_str: "a string",
}


def _shorten(value: Any) -> str:
    text = repr(value.tolist()) if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


@dataclass(frozen=True, slots=True)
class Field:
    """Reader of an attribute: key, conversion, default and check.

    default  None: the key is required; a function gets the fields read before
    count    function of the fields read before that returns the number of values; None: one value
    longer   the array may be longer
    counts   the layers that the number counts: "all", the "first" or the "last"; "" for others
    """

    key: str
    convert: Callable[[Any], Any]
    default: Any = None
    least: float | None = None
    most: float | None = None
    choices: Sequence[str] = ()
    count: Callable[[Any], int] | None = None
    longer: bool = False
    counts: Counts = ""

    def read(self, keys: Keys, owner: Any) -> Any:
        default = self.default(owner) if callable(self.default) else self.default
        if self.count is None:
            value = keys.scalar(self.key, default, self.convert)
            self._check(keys, (value,))
            return value
        n = self.count(owner)
        if self.count in (_n_layer_all, trunk_layers):
            keys.per_layer.add(keys.full(self.key))
        values = keys.values(self.key, n, default, self.convert, self.longer)
        self._check(keys, values)
        return values

    def _check(self, keys: Keys, values: Sequence[Any]) -> None:
        for value in values:
            if self.choices and value not in self.choices:
                raise keys.error(self.key, f"must be one of {', '.join(self.choices)}")
            low = self.least is not None and value < self.least
            if low or (self.most is not None and value > self.most):
                raise keys.error(self.key, f"must be {self._range()}")

    def _range(self) -> str:
        if self.most is not None:
            return f"from {self.least} to {self.most}"
        return "at least 0" if self.least == 0 else f"at least {self.least}"


Default = Any  # a value of the field's type, or a function of the fields read before


def uint(
    key: str,
    default: Default = None,
    *,
    least: int = 0,
    most: int | None = None,
    counts: Counts = "",
) -> Any:
    return Field(key, as_uint, default, least, most, counts=counts)


def number(
    key: str, default: Default = None, *, least: float | None = None, most: float | None = None
) -> Any:
    return Field(key, as_float, default, least, most)


def base(key: str, default: Default = None) -> Any:
    """Return the field for a base of RoPE's frequencies."""
    return Field(key, as_base, default)


def divisor(key: str, default: Default = None) -> Any:
    """Declare a divisor, such as a cap or scale; 0 disables it."""
    return Field(key, as_divisor, default)


def flag(key: str, default: Default = None) -> Any:
    return Field(key, as_bool, default)


def text(key: str, default: Default = None, *, choices: Sequence[str] = ()) -> Any:
    return Field(key, as_str, default, choices=choices)


def _n_layer_all(owner: Any) -> int:
    n: int = owner.n_layer_all
    return n


def trunk_layers(owner: Any) -> int:
    """Return the number of layers without NextN layers, the `count` of keys of the trunk."""
    n: int = owner.n_layer
    return n


def uints(
    key: str,
    default: Default = None,
    *,
    least: int = 0,
    count: Callable[[Any], int] | None = None,
    longer: bool = False,
) -> Any:
    """Declare unsigned integers, one per layer or `count`; longer: there may be more."""
    return Field(key, as_uint, default, least, count=count or _n_layer_all, longer=longer)


def flags(key: str, default: Default = None) -> Any:
    """Declare booleans, one per layer."""
    return Field(key, as_bool, default, count=_n_layer_all, longer=True)


def ints(key: str, default: Default = None, *, least: int, most: int | None = None) -> Any:
    """Declare integers, one per layer, possibly negative."""
    return Field(key, as_int, default, least, most, count=_n_layer_all, longer=True)


def numbers(key: str, default: Default = None) -> Any:
    """Declare floats, one per layer."""
    return Field(key, as_float, default, count=_n_layer_all)


class DeclaredKeys:
    """Reads the fields of its class and its base classes, in the order of declaration.

    A class may declare a field again, or replace it by a value.
    """

    def __init__(self, keys: Keys) -> None:
        for name, field in fields(type(self)):
            setattr(self, name, field.read(keys, self))


def fields(cls: type) -> Iterator[tuple[str, Field]]:
    """Yield the declared fields of a class with their attributes."""
    names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
    for name in names:
        value = getattr_static(cls, name, None)  # Former warns of each use
        if isinstance(value, Field):
            yield name, value


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, Declared="DeclaredKeys")
