"""Leaving layers out, and numbering the others anew (llama-quant.cpp:remap_layer)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ggml_py.errors import GGUFError

_LAYER = re.compile(r"blk\.(\d+)\.")


def renamed(names: Iterable[str], pruned: Iterable[int]) -> dict[str, str]:
    """New names by old ones, in order, without those of the pruned layers.

    Raises GGUFError for a layer that there is not.
    """
    names, gone = list(names), set(pruned)
    layers = range(n_layers(names))  # there are some without tensors
    missing = gone - set(layers)
    if missing:
        raise GGUFError(
            f"there is no layer {min(missing)} to prune; there are 0 to {max(len(layers) - 1, 0)}"
        )
    number = {old: new for new, old in enumerate(n for n in layers if n not in gone)}
    found = {}
    for name in names:
        layer = _LAYER.search(name)
        if layer is None:
            found[name] = name
        elif int(layer[1]) in number:
            start, end = layer.span(1)
            found[name] = f"{name[:start]}{number[int(layer[1])]}{name[end:]}"
    return found


def n_layers(names: Iterable[str]) -> int:
    """How many there are, of names that are numbered."""
    return 1 + max((int(m[1]) for name in names if (m := _LAYER.search(name))), default=-1)


def order(name: str) -> tuple[int, str]:
    """By layer, what is of none first (llama-model-loader.h:weight_name_comparer)."""
    found = re.match(r"blk\.(\d+)\.", name)
    return int(found[1]) if found else -1, name
