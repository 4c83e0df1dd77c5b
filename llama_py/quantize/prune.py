"""Removal of layers: new numbers for the others (llama-quant.cpp:remap_layer), and metadata that
describe them. llama-quantize changes `block_count` only, so most of its pruned files cannot be
loaded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ggml_py.errors import GGUFError, HParamsError, WeightsError
from llama_py.gguf.file import GGUFFile
from llama_py.gguf.keys import Field, fields
from llama_py.gguf.metadata import MetaValue
from llama_py.gguf.write import encode
from llama_py.hparams import HParams
from llama_py.models import architecture
from llama_py.weights import Weights

_LAYER = re.compile(r"blk\.(\d+)\.")


def rename_tensors(names: Iterable[str], pruned: Iterable[int]) -> dict[str, str]:
    """Return new names by old names, in order, without the pruned layers.

    Raises GGUFError for an unknown layer.
    """
    names, gone = list(names), set(pruned)
    layers = range(n_layers(names))  # some may not have tensors
    missing = gone - set(layers)
    if missing:
        raise GGUFError(
            f"unknown layer {min(missing)} to prune; known: 0 to {max(len(layers) - 1, 0)}"
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
    """Return the number of layers, from numbered names."""
    return 1 + max((int(m[1]) for name in names if (m := _LAYER.search(name))), default=-1)


def order(name: str) -> tuple[int, str]:
    """Return the key that sorts names by layer, names without a layer first
    (llama-model-loader.h:weight_name_comparer)."""
    found = re.match(r"blk\.(\d+)\.", name)
    return int(found[1]) if found else -1, name


def pruned_metadata(file: GGUFFile, pruned: Collection[int]) -> dict[str, bytes]:
    """Return the stored values of the keys that must change to describe the remaining layers.

    Counts of layers become smaller and lists lose the values of the pruned layers. A list replaces
    an interval that is no longer true.

    Raises:
        GGUFError: No values describe the remaining layers without changing them.
    """
    kind = architecture(file.architecture)
    old = kind.HParams(file.metadata, kind.arch)
    if old.hadamard is not None:
        raise GGUFError(
            f"{file.path}: layers cannot be pruned, because prism.hadamard.weight_names has names "
            "of weights in layers; prune the file before its weights are folded"
        )
    kept = [il for il in range(old.n_layer_all) if il not in pruned]
    values = _counts(kind.HParams, file.metadata, old, kept) | _lists(file.metadata, old, kept)
    problems = []
    for candidate in (values, values | _list_values(file.metadata, old, kept)):
        problem = _problem(file, candidate, old, kept)
        if not problem:
            return {key: encode(_kind(file, key, v), v) for key, v in candidate.items()}
        problems.append(problem)
    raise GGUFError(
        f"{file.path}: layers {sorted(pruned)} cannot be pruned: {problems[-1]}; prune other layers"
    )


def _kind(file: GGUFFile, key: str, value: MetaValue) -> str:
    if key in file.metadata:
        return file.metadata.kind(key)
    return "arr[bool]" if isinstance(value, list) else "u32"


def _counts(
    cls: type, metadata: Mapping[str, Any], old: HParams, kept: Sequence[int]
) -> dict[str, MetaValue]:
    """Return new values of the declared keys that count layers."""
    found: dict[str, MetaValue] = {}
    for field in declared_counts(cls):
        key = f"{old.arch}.{field.key}"
        if key in metadata:
            n = int(metadata[key])
            start = old.n_layer_all - n if field.counts == "last" else 0
            found[key] = sum(start <= il < start + n for il in kept)
    return found


def declared_counts(cls: type) -> list[Field]:
    """Return the fields of a class that count layers, including overridden fields."""
    everywhere = {f.key: f for base in cls.__mro__ for _, f in fields(base) if f.counts}
    return list(everywhere.values())


def _lists(metadata: Mapping[str, Any], old: HParams, kept: Sequence[int]) -> dict[str, MetaValue]:
    """Return new values of the keys with one value per layer."""
    found: dict[str, MetaValue] = {}
    for key in sorted(old.per_layer_keys & set(metadata)):
        value = metadata[key]
        if isinstance(value, list | np.ndarray):
            items = np.asarray(value).tolist()
            found[key] = [items[il] for il in kept if il < len(items)]
    return found


def _list_values(
    metadata: Mapping[str, Any], old: HParams, kept: Sequence[int]
) -> dict[str, MetaValue]:
    """Return lists in place of the intervals that the file states or that are the default."""
    found: dict[str, MetaValue] = {}
    for name, value in old.layer_lists().items():
        key = f"{old.arch}.{name}"
        if isinstance(value, tuple) and key not in metadata:
            found[key] = [value[il] for il in kept]
        elif not isinstance(value, tuple) and key in metadata:
            found[key] = value
    return found


def _problem(
    file: GGUFFile, values: Mapping[str, MetaValue], old: HParams, kept: Sequence[int]
) -> str:
    """Return why these values do not describe the remaining layers, or ""."""
    kind = architecture(file.architecture)
    gone = set(range(old.n_layer_all)) - set(kept)
    names = rename_tensors(file.tensors, gone & set(range(n_layers(file.tensors))))
    infos = {new: file.tensors[n].rename(new) for n, new in names.items()}
    weights = Weights(infos, str(file.path))
    try:
        new = kind.HParams(file.metadata.replace_values(values), kind.arch)
        kind(new, weights, True)
        weights.finish()
    except (HParamsError, WeightsError) as error:
        return str(error).removeprefix(f"{file.path}: ")
    return _find_change(old, new, kept)


def _find_change(old: HParams, new: HParams, kept: Sequence[int]) -> str:
    """Return the first change in a remaining layer, or ""."""
    number = {il: i for i, il in enumerate(kept)}
    for i, il in enumerate(kept):
        before, after = (asdict(hp.layers[at]) for hp, at in ((old, il), (new, i)))
        for name in before:
            if before[name] != after[name]:
                return f"{name} of layer {il} would change"
        if number.get(old.kv_layer(il)) != new.kv_layer(i):
            return f"layer {il} attends to keys and values of layer {old.kv_layer(il)}"
    if new.n_layer != sum(il < old.n_layer for il in kept):
        return f"{new.n_layer} layers would not be NextN layers"
    if new.n_embd_inp != old.n_embd_inp:
        return f"image embeddings for the first layers must have {old.n_embd_inp} values"
    for name, value in vars(old).items():
        other = vars(new).get(name)
        if name != "layers" and not _alike(value, other, number):
            return f"{name} would change"
    return ""


def _alike(value: Any, other: Any, number: Mapping[int, int]) -> bool:
    """Return True if a hyperparameter is equal, or has the values of the remaining layers.

    Values may be numbers of layers, such as the indexer of each layer.
    """
    if isinstance(value, tuple | list) and value and isinstance(value[0], int | float):
        fewer = [value[il] for il in number if il < len(value)]
        return list(other) in (list(value), fewer, [number.get(v, v) for v in fewer])
    return not isinstance(value, bool | float | str) or value == other
