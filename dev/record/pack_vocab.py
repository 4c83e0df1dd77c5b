#!/usr/bin/env python3
"""Pack vocabularies with llama.cpp's test vectors for tests/data/vocab.

A packed vocabulary has the tokenizer's data from a GGUF file X.gguf. It also has the test strings
and their token ids from the adjacent files X.gguf.inp and X.gguf.out, if these exist.

    python -m dev.record.pack_vocab llama.cpp/models/ggml-vocab-gpt-2.gguf

Each merge is stored as the resulting token, and the length of this token's first half.
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np

from llama_py.gguf.file import GGUFFile

DATA = Path(__file__).parents[2] / "tests" / "data" / "vocab"
KEYS = ("tokenizer.", "general.architecture", "general.name")
SEPARATOR = "\n__ggml_vocab_test__\n"


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("files", nargs="+", type=Path, metavar="FILE")
    for path in p.parse_args().files:
        text = json.dumps(packed(path), ensure_ascii=False, separators=(",", ":"))
        target = DATA / f"{path.stem.removeprefix('ggml-vocab-')}.json.xz"
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
        print(f"{target}: {target.stat().st_size} bytes")


def packed(path: Path) -> dict[str, Any]:
    """Return a packed vocabulary.

    metadata    the tokenizer's keys without merges, and the file's names
    merges      [token ids, each minus the previous id; lengths of the first halves]
    texts, ids  the test vectors, if any
    """
    with GGUFFile.open(path) as file:
        metadata = {k: _plain(v) for k, v in file.metadata.items() if k.startswith(KEYS)}
    merges = metadata.pop("tokenizer.ggml.merges", [])
    inputs, outputs = (path.with_suffix(f".gguf.{end}") for end in ("inp", "out"))
    texts = inputs.read_bytes().decode().split(SEPARATOR) if inputs.exists() else []
    lines = outputs.read_text().splitlines() if outputs.exists() else []
    return {
        "metadata": metadata,
        "merges": _pack_merges(merges, metadata["tokenizer.ggml.tokens"]),
        "texts": texts[: len(lines)],  # most end with a separator
        "ids": [[int(i) for i in line.split()] for line in lines],
    }


def _pack_merges(merges: list[str], tokens: list[str]) -> tuple[list[int], list[int]]:
    number = {token: i for i, token in enumerate(tokens)}
    halves = [merge.split(" ") for merge in merges]
    ids = np.array([number[a + b] for a, b in halves], np.int64)
    return np.diff(ids, prepend=0).tolist(), [len(a) for a, _ in halves]


def _plain(value: Any) -> Any:
    """Return a value with JSON types; each float32 has the minimum number of digits."""
    if not isinstance(value, np.ndarray):
        return value
    return [float(str(v)) for v in value] if value.dtype == np.float32 else value.tolist()


if __name__ == "__main__":
    main()
