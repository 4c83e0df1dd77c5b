"""Parsers of option texts; a ValueError names the expected form."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_UNITS = {"": 20, "K": 10, "M": 20, "G": 30, "T": 40}
_TRUTHS = {
    **dict.fromkeys(("1", "on", "true", "yes", "enabled"), True),
    **dict.fromkeys(("0", "off", "false", "no", "disabled"), False),
}


def parse_text(kind: Callable[[str], T], text: str, expected: str) -> T:
    """Return `kind(text)`; a ValueError or KeyError is replaced by a plainer one."""
    try:
        return kind(text)
    except (ValueError, KeyError):
        raise ValueError(f"expected {expected}, got {text!r}") from None


def integer(text: str) -> int:
    return parse_text(int, text, "an integer")


def number(text: str) -> float:
    return parse_text(float, text, "a number")


def truth(text: str) -> bool:
    """Parse `on`, `1`, `true`, ... or `off`, `0`, `false`, ..."""
    return parse_text(lambda _: _TRUTHS[text.lower()], text, "on or off")


def on_off_auto(text: str) -> str:
    """Parse on, off or auto, also 1 and 0 as llama.cpp takes -fa."""
    if text.lower() in ("auto", "-1"):
        return "auto"
    return "on" if parse_text(truth, text, "on, off or auto") else "off"


def above_zero(text: str) -> int | None:
    """Parse an integer; None for 0, the automatic choice."""
    return integer(text) or None


def layer_count(text: str) -> int:
    """Parse a number, `auto` (-1) or `all` (-2), like llama.cpp."""
    return {"auto": -1, "all": -2}.get(text) or integer(text)


def text_tuple(text: str) -> tuple[str, ...]:
    """Return the text of a repeatable flag unchanged, as a tuple."""
    return (text,)


def words(text: str) -> tuple[str, ...]:
    """Split a text at commas."""
    return tuple(text.split(","))


def byte_count(text: str) -> int:
    """Parse `24G`, `512M` or, in MiB, `512` to bytes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", text.strip(), re.I)
    if found is None:
        raise ValueError(f"expected a size such as 24G or 512M, got {text!r}")
    return int(float(found[1]) * 2 ** _UNITS[found[2].upper()])


def device_names(text: str) -> tuple[str, ...]:
    """Parse `opencl0,cpu`, or `opencl0/cpu` if commas separate values."""
    return words(text.lower().replace("/", ","))


def tensor_rules(text: str) -> dict[str, str]:
    """Parse `exps=cpu,attn=opencl0` to devices by expression."""
    rules = dict(rule.rpartition("=")[::2] for rule in words(text) if rule)
    if not all(regex and device for regex, device in rules.items()):
        raise ValueError(f"expected REGEX=DEVICE,..., got {text!r}")
    return rules


def forms(text: str) -> dict[str, str]:
    """Parse `delta-net=chunked` to a variant by kind."""
    pairs = [pair.partition("=") for pair in words(text)]
    if not all(kind and form for kind, _, form in pairs):
        raise ValueError(f"expected KIND=VARIANT,..., got {text!r}")
    return {kind.replace("-", "_"): form for kind, _, form in pairs}


def kv_overrides(text: str) -> dict[str, bool | int | float | str]:
    """Parse `general.name=str:a,x.count=int:3` to values by key; values with commas are quoted."""
    import csv  # rarely used, and slow to import

    found: dict[str, bool | int | float | str] = {}
    for item in next(csv.reader([text]), []):
        key, _, value = item.partition("=")
        kind, colon, value = value.partition(":")
        if not key or not colon or kind not in _KINDS:
            wanted = "KEY=TYPE:VALUE,... with int, float, bool or str"
            raise ValueError(f"expected {wanted}, got {text!r}")
        found[key] = _KINDS[kind](value)
    return found


def file_type_name(text: str) -> str:
    """Parse `q4_k_m` to the name of a file type, Q4_K_M."""
    from llama_py.gguf.file_types import file_type

    return file_type(text).name


def shares(text: str) -> tuple[float, ...]:
    """Parse `3,1` to numbers."""
    parts = words(text.replace("/", ","))
    return parse_text(lambda _: tuple(map(float, parts)), text, "shares such as 3,1")


def logit_bias(text: str) -> dict[int | str, float]:
    """Parse `15043+1` or `15043-1.5` (or `-inf`), a bias of a token id's logit; other texts, such
    as ` Hello+1`, and quoted texts bias all their tokens."""
    found = _BIASED.fullmatch(text)
    if found is None or re.fullmatch(r"[+-]\d+", found[1]):
        raise ValueError(f"expected a logit bias such as 15043+1 or Hello-1, got {text!r}")
    what, bias = found[1], float(found[2])
    if what.isdecimal():
        return {int(what): bias}
    return {what[1:-1] if len(what) > 2 and what[0] == what[-1] == '"' else what: bias}


_BIASED = re.compile(r"(.+?)([+-](?:inf|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?))", re.DOTALL)
_KINDS: dict[str, Callable[[str], bool | int | float | str]] = {
    "int": integer,
    "float": number,
    "bool": truth,
    "str": str,
}


_URL = re.compile(r"(\w+://)(?:[^/\s@]*@)?([^\s?#'\"]*)(?:[?#][^\s'\"]*)?")


def without_credentials(text: str) -> str:
    """Return a text with all names, passwords and queries removed from its URLs."""
    return _URL.sub(r"\1\2", text)


def shown_url(url: str) -> str:
    """Return a URL, valid or not, without its possibly secret parts."""
    return without_credentials("%20".join(url.split()))
