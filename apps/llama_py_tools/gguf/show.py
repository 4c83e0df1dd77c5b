"""Display of a file's key-values and tensors, as text or JSON."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ggml_py.errors import GGUFError
from llama_py.gguf.file import GGUFFile, TensorInfo
from llama_py.gguf.metadata import Metadata, printable
from llama_py.loading.open import open_model
from llama_py_tools.gguf.sizes import show_size
from llama_py_tools.models import session

EDGE = 6  # array items to show
WIDTH = 100  # characters of a string to show


def show(path: str, keys: str, tensors: str, full: bool, as_json: bool) -> None:
    with open_model(path) as file:
        chosen = [key for key in file.metadata if fnmatchcase(key, keys)]
        infos = [t.as_stored() for t in file.tensors.values() if fnmatchcase(t.name, tensors)]
        if as_json:
            text = json.dumps(as_data(file, chosen, infos), indent=1) + "\n"
        else:
            text = "\n".join(lines(file, chosen, infos, full)) + "\n"
    session.write(text)


def get(path: str, key: str, as_json: bool) -> None:
    with open_model(path) as file:
        if key not in file.metadata:
            similar = get_close_matches(key, file.metadata, 4, 0.5)
            hint = "llama-py-gguf show lists the keys"
            if similar:
                hint = f"similar: {', '.join(similar)}"
            raise GGUFError(f"{path}: unknown key {key!r}; {hint}")
        value = to_lists(file.metadata[key])
    text = json.dumps(value) if as_json or not isinstance(value, str) else value
    session.write(text + "\n")


def as_data(file: GGUFFile, keys: list[str], infos: list[TensorInfo]) -> dict[str, Any]:
    """Return JSON data; bytes of texts that are not UTF-8 become lone surrogates."""
    return {
        "version": file.version,
        "files": [str(p) for p in file.paths],
        "metadata": {
            key: {"kind": file.metadata.kind(key), "value": to_lists(file.metadata[key])}
            for key in keys
        },
        "tensors": {
            t.name: {"type": t.type.name, "ne": shape(t), "offset": t.offset, "nbytes": t.nbytes}
            for t in infos
        },
    }


def lines(file: GGUFFile, keys: list[str], infos: list[TensorInfo], full: bool) -> Iterator[str]:
    parts = f" in {len(file.paths)} parts" if len(file.paths) > 1 else ""
    yield (
        f"GGUF version {file.version}{parts}, {len(file.metadata)} keys,"
        f" {len(file.tensors)} tensors"
    )
    width = max(map(len, keys), default=0)
    for key in keys:
        kind = file.metadata.kind(key)
        yield f"  {printable(key):{width}}  {kind:9}  {value_text(file.metadata, key, full)}"
    yield from tensor_lines(infos)


def tensor_lines(infos: list[TensorInfo]) -> Iterator[str]:
    width = max((len(printable(t.name)) for t in infos), default=0)
    for t in infos:
        ne = ", ".join(map(str, shape(t)))
        yield f"  {printable(t.name):{width}}  {t.type.name:8}  [{ne}]  {show_size(t.nbytes)}"
    if not infos:
        return
    counts, sizes = Counter(t.type.name for t in infos), Counter[str]()
    for t in infos:
        sizes[t.type.name] += t.nbytes
    each = ", ".join(f"{n} {name} ({show_size(sizes[name])})" for name, n in counts.most_common())
    elements = sum(math.prod(t.ne) for t in infos)
    size = sum(sizes.values())
    yield (
        f"{elements / 1e6:.2f} M elements in {show_size(size)},"
        f" {8 * size / elements:.2f} bits each: {each}"
    )


def value_text(metadata: Metadata, key: str, full: bool) -> str:
    """Return a value on one line, shortened unless `full`."""
    value = metadata[key]
    if isinstance(value, str):
        text = printable(value)
        if full or len(text) <= WIDTH:
            return text
        return f"{text[:WIDTH]}... ({len(value)} characters)"
    if not isinstance(value, list | np.ndarray):
        return str(value)
    items, n = to_lists(value), len(value)
    if full or n <= EDGE:
        return json.dumps(items)
    return f"{json.dumps(items[:EDGE])[:WIDTH]}... ({n} items)"


def to_lists(value: Any) -> Any:
    """Turn NumPy's arrays into lists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [to_lists(v) for v in value] if isinstance(value, list) else value


def shape(t: TensorInfo) -> list[int]:
    """Return a tensor's shape without trailing dimensions of 1."""
    n = max((i + 1 for i, size in enumerate(t.ne) if size != 1), default=1)
    return list(t.ne[:n])
