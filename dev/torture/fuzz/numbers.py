"""Numbers and strings that often cause errors, for fuzzing."""

from __future__ import annotations

import math
from random import Random
from typing import Any

INTEGERS = (
    0, 1, 2, 3, 5, 7, 8, 31, 32, 33, 64, 127, 255, 256, 257, 511, 512, 513, 1000, 1023, 1024, 1025,
    4095, 4096, 65535, 65536, 100000, 2**20, 2**24, 2**30, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1,
    2**32, 2**33 + 1, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -1, -2, -128, -(2**31), -(2**63),
)  # fmt: skip
FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, -1e-45, 1e-40, 1.2e-38, 1e-30, 1e-20, 1e-8, 1e-6, 3.0, 100.0,
    1e4, 1e6, 1e8, 1e10, 1e20, 1e30, 1e38, 3.4028234e38, -3.4e38, 2.0**31, 2.0**63, 1e300, 1e-300,
    math.nan, math.inf, -math.inf,
)  # fmt: skip
TEXTS = (
    "",
    " ",
    "\0",
    "\n",
    "a\nb",
    "\x1b[2J\x1b[31mred",
    "\x07",
    "\r",
    "\u202eabc",
    "\x9b1m",
    "none",
    "yarn",
    "longrope",
    "linear",
    "no_vocab",
    "default",
    "x" * 70000,
    "é",
    "\U0001f642",
    "\udcff",
    "%s%n",
    "{}{0}",
    "<s>",
    "</s>",
    "-1",
    "1e999",
    "../../x",
    "a b c",
)
HUGE = (0, 1, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**61, 2**62, 2**63 - 1, 2**63,
        2**64 - 32, 2**64 - 1)  # fmt: skip

INT_KINDS = ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64")
_BITS = {kind: (int(kind[1:]), kind[0] == "i") for kind in INT_KINDS}


def fits(kind: str, n: int) -> bool:
    bits, signed = _BITS[kind]
    return -(1 << bits - 1) <= n < 1 << bits - 1 if signed else 0 <= n < 1 << bits


def integer(rng: Random, near: int | None = None) -> int:
    """Return an integer from INTEGERS, or an integer derived from `near`."""
    if near is not None and rng.random() < 0.5:
        changed = (near + 1, near - 1, near * 2, near // 2, near * 3, near + 2, -near, near * 256)
        return rng.choice([n for n in changed if -(2**63) <= n < 2**64])
    return rng.choice(INTEGERS)


def integer_kind(rng: Random, n: int) -> str:
    """Return an integer type that can store n, usually u32 as in most files."""
    if fits("u32", n) and rng.random() < 0.6:
        return "u32"
    return rng.choice([kind for kind in INT_KINDS if fits(kind, n)])


def floating(rng: Random, near: float | None = None) -> tuple[str, float]:
    """Return a float type, and a float from FLOATS or derived from `near`."""
    value = rng.choice(FLOATS)
    if near is not None and math.isfinite(near) and rng.random() < 0.3:
        value = near * rng.choice((-1, 0.5, 2, 1e3, 1e-3, 1e12, 1e-12))
    big = math.isfinite(value) and abs(value) > 3.4028234e38
    return ("f64" if big or rng.random() < 0.3 else "f32"), value


def scalar(rng: Random, near: Any = None) -> tuple[str, Any]:
    """Return a random (type, value) of any type."""
    kind = rng.choice(("int", "int", "float", "text", "bool"))
    if kind == "int":
        n = integer(rng, near if type(near) is int else None)
        return integer_kind(rng, n), n
    if kind == "float":
        return floating(rng, near if type(near) is float else None)
    if kind == "bool":
        return "bool", rng.random() < 0.5
    return "str", rng.choice(TEXTS)


def kind_of(value: Any) -> str:
    """Return the type that a tiny model's file uses for a metadata value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "i32" if value < 0 else "u32"
    return "str" if isinstance(value, str) else "f32"


def shown(value: Any) -> str:
    """Return the value as a line of at most 60 characters."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
