"""From the text behind a flag to a value; a ValueError says what was expected."""

from __future__ import annotations

import re

_TRUE = {"1", "on", "true", "yes", "enabled"}
_FALSE = {"0", "off", "false", "no", "disabled"}


def integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"expected an integer, got {text!r}") from None


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected a number, got {text!r}") from None


def truth(text: str) -> bool:
    """`on`, `1`, `true`, ... or `off`, `0`, `false`, ..."""
    word = text.lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(f"expected on or off, got {text!r}")
    return word in _TRUE


def on_off_auto(text: str) -> str:
    """As llama.cpp takes -fa: also 1 and 0."""
    if text.lower() in ("auto", "-1"):
        return "auto"
    try:
        return "on" if truth(text) else "off"
    except ValueError:
        raise ValueError(f"expected on, off or auto, got {text!r}") from None


def above_zero(text: str) -> int | None:
    """An integer; None for 0, which leaves the choice open."""
    return integer(text) or None


def layer_count(text: str) -> int:
    """A number, or as llama.cpp `auto` and `all`, which are -1."""
    return -1 if text in ("auto", "all") else integer(text)


def device_names(text: str) -> tuple[str, ...]:
    """`opencl0,cpu` or, where the comma stands between values, `opencl0/cpu`."""
    return tuple(re.split("[,/]", text.lower()))


def tensor_rules(text: str) -> dict[str, str]:
    """`exps=cpu,attn=opencl0` as devices by expression."""
    rules = dict(rule.rpartition("=")[::2] for rule in text.split(",") if rule)
    if not all(regex and device for regex, device in rules.items()):
        raise ValueError(f"expected REGEX=DEVICE,...; got {text!r}")
    return rules


def shares(text: str) -> tuple[float, ...]:
    """`3,1` as numbers."""
    try:
        return tuple(float(part) for part in text.replace("/", ",").split(","))
    except ValueError:
        raise ValueError(f"expected shares like 3,1; got {text!r}") from None


def logit_bias(text: str) -> dict[int, float]:
    """`15043+1` or `15043-1.5` (or `-inf`): what is added to the logit of a token id."""
    match = re.fullmatch(r"(\d+)([+-].+)", text)
    try:
        if match:
            return {int(match[1]): float(match[2])}
    except ValueError:
        pass
    raise ValueError(f"logit bias must look like 15043+1 or 15043-1 (id, bias), it is {text!r}")
