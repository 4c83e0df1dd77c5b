"""Mutations of a GGUF file. Each function changes an `Image` and returns a description."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from dev.torture.fuzz import numbers
from dev.torture.fuzz.gguf_bytes import KINDS, Tensor, u32, u64
from dev.torture.fuzz.image import Image, Items, Pair
from dev.torture.fuzz.numbers import shown
from ggml_py.types import TYPES

Mutation = Callable[[Random, Image, Sequence[str]], str]  # keys: the keys to change

NAMES: tuple[str | bytes, ...] = (
    b"",
    b"\xff\xfe",
    b"a\nb",
    b"\x1b[2Jw",
    "é",
    "x" * 63,
    "x" * 64,
    "x" * 65,
    "blk.0.attn_q.weight",
    "blk.99.attn_q.weight",
    "output.weight",
    "token_embd.weight",
    "blk.0.",
    ".weight",
    "blk.0.x.bias",
    "\u202ename",
    "a b",
    "\0",
    "%s",
    "blk.-1.attn_q.weight",
    "rope_freqs.weight",
)


def value(rng: Random, image: Image, keys: Sequence[str]) -> str:
    """Change the value of a key, usually within its type."""
    key = rng.choice(keys)
    old = image.pair(key)
    near = old.value if old else None
    if type(near) is int and rng.random() < 0.85:
        n = numbers.integer(rng, near)
        pair = Pair(key, numbers.integer_kind(rng, n), n)
    elif type(near) is float and rng.random() < 0.85:
        pair = Pair(key, *numbers.floating(rng, near))
    else:
        pair = Pair(key, *numbers.scalar(rng, near))
    image.set(pair)
    return str(pair)


def items(rng: Random, image: Image, keys: Sequence[str]) -> str:
    """Replace a key's value by an array, or change an array."""
    key = rng.choice(keys)
    old = image.pair(key)
    count = image.pair(next((k for k in keys if k.endswith(".block_count")), ""))
    n = count.value if count and type(count.value) is int and 0 <= count.value < 600 else 2
    given = old.value if old is not None else None
    if isinstance(given, Items) and rng.random() < 0.7:
        pair = Pair(key, "arr", _changed(rng, given))
    else:
        length = rng.choice((n, n, n, n + 1, n - 1, 0, 1, 2, 4))
        near = None if isinstance(given, Items) else given
        found = [numbers.scalar(rng, near) for _ in range(max(length, 0))]
        kind = found[0][0] if found else rng.choice(["u32", "str", "f32", "bool"])
        if type(near) is int and rng.random() < 0.7:
            values = [near if rng.random() < 0.6 else numbers.integer(rng, near) for _ in found]
            kind = "i64" if all(numbers.fits("i64", v) for v in values) else "u64"
            values = [v % 2**64 if kind == "u64" else v for v in values]
        else:
            values = [found[0][1]] * len(found) if found else []
        pair = Pair(key, "arr", Items(kind, values))
    image.set(pair)
    return str(pair)


def _changed(rng: Random, old: Items) -> Items:
    values, what = list(old.values), rng.randrange(7)
    at = rng.randrange(len(values)) if values else 0
    if what == 0:
        return Items(old.kind, values[:at])
    if what == 1:
        return Items(old.kind, values + values[: rng.choice((1, 2, len(values)))])
    if what == 2:
        return Items(old.kind, values, rng.choice(numbers.HUGE))
    if what == 3:
        return Items("arr", [Items(old.kind, values), Items("u8", [1])])
    if what == 4 and values:
        values[at] = values[rng.randrange(len(values))]
        return Items(old.kind, values)
    if what == 5 and old.kind != "arr" and values:
        return _item(rng, old.kind, values, at)
    kind, one = numbers.scalar(rng)
    return Items(kind, [one] * len(values))


def _item(rng: Random, kind: str, values: list[Any], at: int) -> Items:
    if kind == "str":
        values[at] = rng.choice(numbers.TEXTS)
    elif kind == "bool":
        values[at] = not values[at]
    elif kind[0] == "f":
        values[at] = numbers.floating(rng)[1]
        kind = "f64"
    else:
        values[at] = numbers.integer(rng, values[at])
        kind = "i64" if all(numbers.fits("i64", v) for v in values) else "f64"
    return Items(kind, values)


def key_gone(rng: Random, image: Image, keys: Sequence[str]) -> str:
    there = [k for k in keys if image.pair(k)] or [str(p.key) for p in image.pairs]
    if not there:
        return "no keys"
    key = rng.choice(there)
    image.pairs = [p for p in image.pairs if p.key != key]
    return f"no {key}"


def key_twice(rng: Random, image: Image, keys: Sequence[str]) -> str:
    if not image.pairs:
        return "no keys"
    pair = rng.choice(image.pairs)
    image.pairs.insert(rng.randrange(len(image.pairs) + 1), pair)
    return f"{shown(pair.key)} twice"


def key_added(rng: Random, image: Image, keys: Sequence[str]) -> str:
    pair = Pair(rng.choice((*NAMES, "general.file_type", "split.count")), *numbers.scalar(rng))
    image.pairs.insert(rng.randrange(len(image.pairs) + 1), pair)
    return f"more: {pair}"


def raw_value(rng: Random, image: Image, keys: Sequence[str]) -> str:
    """Write a false type id or length."""
    key = rng.choice(keys)
    raw = rng.choice(
        (
            lambda: u32(rng.choice((8, 9, 13, 99, 2**31, 2**32 - 1))) + bytes(rng.randrange(20)),
            lambda: u32(8) + u64(rng.choice(numbers.HUGE)) + b"abc",
            lambda: (
                u32(9)
                + u32(rng.choice([*KINDS.values(), 13, 2**32 - 1]))
                + u64(rng.choice(numbers.HUGE))
                + bytes(8)
            ),
        )
    )()
    image.set(Pair(key, "", None, raw))
    return f"{key} is the bytes {raw.hex()}"


def some_tensor(rng: Random, image: Image) -> Tensor:
    if not image.tensors:
        image.tensors.append(Tensor("w"))
    return rng.choice(image.tensors)


def dims(rng: Random, image: Image, keys: Sequence[str]) -> str:
    t = some_tensor(rng, image)
    ne = list(t.ne)
    what = rng.randrange(6)
    if what == 0 and ne:
        ne[rng.randrange(len(ne))] = rng.choice((0, 1, -1, 2**31, 2**32, 2**62, 2**63 - 1))
    elif what == 1 and ne:
        i = rng.randrange(len(ne))
        ne[i] = max(ne[i] + rng.choice((1, -1, ne[i], 32, -32)), 0)
    elif what == 2:
        ne = ne[::-1]
    elif what == 3:
        ne = rng.choice(([], [1], [*ne, 1, 1][:4], [*ne, 2], [2**31, 2**31, 2, 2], [1] * 5))
    elif what == 4 and len(ne) > 1:
        ne = [ne[0] * ne[1], *ne[2:]]
    else:
        t.n_dims = rng.choice((0, 1, 3, 4, 5, 2**31, 2**32 - 1))
        return f"{shown(t.name)} claims {t.n_dims} dimensions"
    t.ne = tuple(ne)
    return f"{shown(t.name)} is {ne}"


def type_only(rng: Random, image: Image, keys: Sequence[str]) -> str:
    """Change a type id without changing the bytes."""
    t = some_tensor(rng, image)
    t.type_id = rng.choice((*TYPES, 4, 5, 31, 99, 2**31, 2**32 - 1))
    return f"{shown(t.name)} is of type {t.type_id}"


def retyped(rng: Random, image: Image, keys: Sequence[str]) -> str:
    """Change the type of some tensors, with random bytes of the matching size."""
    chosen = [t for t in image.tensors if rng.random() < 0.5] or [some_tensor(rng, image)]
    dtype = rng.choice(list(TYPES.values()))
    told = []
    for t in chosen:
        if not t.ne or t.ne[0] % dtype.block_size or min(t.ne) < 1:
            continue
        n = dtype.row_size(t.ne[0])
        for size in t.ne[1:]:
            n *= size
        if n < 1 << 24:
            t.type_id, t.data = dtype.id, rng.randbytes(n)
            told.append(shown(t.name))
    return f"{dtype.name}: {', '.join(told[:4])} ({len(told)})"


def offset(rng: Random, image: Image, keys: Sequence[str]) -> str:
    t = some_tensor(rng, image)
    t.offset = rng.choice((*numbers.HUGE, 3, 32, 64, 4096))
    return f"{shown(t.name)} at {t.offset}"


def name(rng: Random, image: Image, keys: Sequence[str]) -> str:
    t = some_tensor(rng, image)
    old, t.name = t.name, rng.choice((*NAMES, some_tensor(rng, image).name))
    return f"{shown(old)} is called {shown(t.name)}"


def tensor_gone(rng: Random, image: Image, keys: Sequence[str]) -> str:
    t = some_tensor(rng, image)
    image.tensors.remove(t)
    return f"no {shown(t.name)}"


def tensor_added(rng: Random, image: Image, keys: Sequence[str]) -> str:
    image.tensors.insert(
        rng.randrange(len(image.tensors) + 1), Tensor(rng.choice(NAMES), (rng.choice((1, 8, 64)),))
    )
    added = image.tensors[-1]
    added.data = bytes(4 * max(added.ne[0], 1)) if added.type_id == 0 else added.data
    return f"added a tensor, last is {shown(added.name)}"


def moved(rng: Random, image: Image, keys: Sequence[str]) -> str:
    rng.shuffle(image.tensors)
    return "tensors in another order"


FILLS = (
    ("NaN", struct.pack("<f", float("nan"))), ("inf", struct.pack("<f", float("inf"))),
    ("-inf", struct.pack("<f", float("-inf"))), ("1e-45", struct.pack("<f", 1e-45)),
    ("3e38", struct.pack("<f", 3e38)), ("-3e38", struct.pack("<f", -3e38)), ("0", bytes(4)),
    ("FF", b"\xff" * 4), ("-1", struct.pack("<f", -1.0)), ("1e20", struct.pack("<f", 1e20)),
)  # fmt: skip


def data(rng: Random, image: Image, keys: Sequence[str]) -> str:
    """Write invalid weights: a whole tensor, or one number."""
    t = some_tensor(rng, image)
    what, word = rng.choice(FILLS)
    n = len(t.data) // 4
    if not n:
        return "nothing"
    if rng.random() < 0.5:
        t.data = word * n
        return f"{shown(t.name)} is all {what}"
    at = rng.randrange(n)
    t.data = t.data[: 4 * at] + word + t.data[4 * at + 4 :]
    return f"{shown(t.name)} has {what} at {at}"


def layout(rng: Random, image: Image, keys: Sequence[str]) -> str:
    """Change counts, version, magic or alignment."""
    what = rng.choice(("n_kv", "n_tensors", "version", "magic", "alignment", "said alignment"))
    if what in ("n_kv", "n_tensors"):
        true = len(image.pairs if what == "n_kv" else image.tensors)
        n = rng.choice((true - 1, true + 1, *numbers.HUGE)) % 2**64
        setattr(image, what, n)
        return f"{what} {n}"
    if what == "version":
        image.version = rng.choice((0, 1, 2, 2, 4, 0x03000000, 2**32 - 1))
        return f"version {image.version}"
    if what == "magic":
        image.magic = rng.choice((b"GGUf", b"\0\0\0\0", b"tjgg", b"PK\3\4", b"<!DO"))
        return f"magic {image.magic!r}"
    n = rng.choice((1, 2, 8, 16, 64, 4096, 65536))
    if what == "alignment":
        image.alignment = n
    pair = Pair("general.alignment", *numbers.scalar(rng, n))
    if rng.random() < 0.5:
        pair = Pair("general.alignment", "u32", n)
    image.set(pair)
    return f"aligned to {image.alignment}, {pair}"


def cut(rng: Random, image: Image, keys: Sequence[str]) -> str:
    """Cut the file near the end of an element, or append bytes."""
    ends, at = [0], 0
    for piece in image.pieces():
        at += len(piece)
        ends.append(at)
    image.end = max(rng.choice(ends) + rng.choice((0, 0, -1, 1, -4, 8)), 0)
    if rng.random() < 0.2:
        image.end, image.more = None, bytes(rng.choice((1, 31, 32, 4096)))
        return f"{len(image.more)} bytes too many"
    return f"cut at {image.end} of {at}"


def flips(rng: Random, image: Image, keys: Sequence[str]) -> str:
    """Change some bytes of the header."""
    head = sum(map(len, image.pieces()[: 4 + len(image.pairs) + len(image.tensors)]))
    told = []
    for _ in range(rng.randint(1, 4)):
        at, raw = rng.randrange(head), bytes([rng.choice((0, 1, 9, 127, 128, 255))])
        if rng.random() < 0.3:
            raw = u64(rng.choice(numbers.HUGE))
        image.patches.append((at, raw[: head - at]))
        told.append(f"{raw.hex()} at {at}")
    return ", ".join(told)


# How often each mutation is chosen.
MUTATIONS: dict[Mutation, int] = {
    value: 40, items: 16, key_gone: 4, key_twice: 1, key_added: 2, raw_value: 2, dims: 4,
    type_only: 1, retyped: 16, offset: 1, name: 3, tensor_gone: 3, tensor_added: 2, moved: 1,
    data: 24, layout: 2, cut: 2, flips: 3,
}  # fmt: skip


def mutate(rng: Random, image: Image, keys: Sequence[str]) -> str:
    """Apply one to three mutations."""
    n = rng.choice((1, 1, 2, 3))
    chosen = rng.choices(list(MUTATIONS), list(MUTATIONS.values()), k=n)
    return "; ".join(f"{one.__name__}: {one(rng, image, keys)}" for one in chosen)
