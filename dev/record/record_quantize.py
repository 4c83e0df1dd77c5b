#!/usr/bin/env python3
"""Record what the real llama-quantize makes of files' heads, and ggml of rows, into
tests/data/quantize. Needs a built llama.cpp:

    python -m dev.record.record_quantize BUILD/bin
    python -m dev.record.newest types ARCH ...  # afterwards: models that need a later build
"""

from __future__ import annotations

import argparse
import json
import lzma
import tempfile
from pathlib import Path

import numpy as np

from dev.record.golden.quantize import (
    BLOCKS,
    DATA,
    TYPES,
    cases,
    dry_run,
    packed,
    quantized,
    rows,
    write_head,
)
from ggml_cpu.quantize.types import quantizers
from llama_py.gguf.file_types import FILE_TYPES
from llama_py.quantize.imatrix.file import Imatrix, ImatrixEntry, write_imatrix


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("bin", type=Path, metavar="BUILD/bin")
    built = p.parse_args().bin
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        found = record_types(built / "llama-quantize", Path(folder))
    (DATA / TYPES).write_bytes(lzma.compress(json.dumps(found).encode()))
    record_blocks(next(built.glob("libggml-base.*")))


def record_types(tool: Path, folder: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    imatrix = folder / "imatrix.gguf"
    entry = ImatrixEntry(np.ones(256, np.float32), np.ones(1, np.int64))
    write_imatrix(imatrix, Imatrix("", {"blk.0.attn_q.weight": entry}, ["none"], 1, 1))
    for name, case in cases(list(FILE_TYPES)):
        path = folder / f"{name}.gguf"
        write_head(path, case)
        options = [*case.options, *(["--imatrix", str(imatrix)] if case.imatrix else [])]
        for type in case.types:
            types = dry_run(tool, path, type, options)
            if types is None:
                print(f"{name} {type}: refused")
            else:
                found.setdefault(name, {})[type] = packed(types)
    return found


def record_blocks(library: Path) -> None:
    """Record the bytes of every type for rows [6, 512], without and with importance [512]."""
    real, (x, weights) = quantized(library), rows()
    arrays = {"x": x.astype(np.float16), "weights": weights.astype(np.float16)}
    for name, quantizer in quantizers().items():
        if quantizer.plain is not None:
            arrays[name] = real(quantizer.type, x, None)
        if quantizer.weighted is not None:
            arrays[f"{name}.weighted"] = real(quantizer.type, x, weights)
    np.savez_compressed(DATA / BLOCKS, **arrays)


if __name__ == "__main__":
    main()
