#!/usr/bin/env python3
"""Compare the logits of model files with llama.cpp's.

    pip install '.[parity]'
    test-llama-archs -s 4242 -o DIR            # llama.cpp's own: random models of architectures
    python -m dev.compare.compare_models DIR/*.gguf  # a line each, and how many are equal

Both engines process a prompt, then two tokens, with F32 caches and without flash attention, so that
no value is rounded. Models without logits are compared by embeddings. llama.cpp loads some scales
and biases but omits them from its graph; llama-py uses them. So both get the file without them, and
a line has their number. If llama.cpp returns another row than the requested row, all rows are
requested, and the right one is compared. Each file has a separate process, because either engine
may refuse the file, or llama.cpp may abort.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dev.record.golden import runs
from dev.record.golden.engines import LlamaCpp, Ours
from dev.record.golden.facts import facts_of
from dev.tiny_models import Tiny
from llama_py.gguf.file import GGUFFile
from llama_py.gguf.write import content
from llama_py.support.whole_file import replace_file

BOUND = 1e-5
OTHER = 0.5  # NMSE of rows of different tokens
SECONDS = 120  # limit per file; the first may compile kernels

Floats = NDArray[np.float64]


class Found(NamedTuple):
    """Result of a comparison: the error, or the reason why it is missing."""

    nmse: float | None
    words: str = ""

    def line(self, bound: float) -> str:
        if self.nmse is None:
            return self.words
        return f"{self.nmse:.2g}{self.words}" + ("" if self.nmse <= bound else " DIFFERS")


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if all files are equal, 1 if any differs or cannot be compared."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("files", nargs="+", type=Path, metavar="FILE")
    p.add_argument("--bound", type=float, default=BOUND, help=f"of the NMSE; default {BOUND:g}")
    p.add_argument("--device", default="cpu", help="ours; default cpu")
    p.add_argument("--prompt", type=int, default=40, metavar="N", help="tokens; default 40")
    args = p.parse_args(argv)
    os.environ["GGML_NO_BACKTRACE"] = "1"  # print a failed assertion in one line
    equal = 0
    for path in args.files:
        found = apart(path, args.device, args.prompt)
        equal += found.nmse is not None and found.nmse <= args.bound
        print(f"{path.name:32} {found.line(args.bound)}", flush=True)
    print(f"{equal} of {len(args.files)} within {args.bound:g}")
    return int(equal < len(args.files))


def apart(path: Path, device: str, n_prompt: int) -> Found:
    """Run `compare` in a separate process."""
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(
        target=_tell, args=(there, path, device, n_prompt)
    )
    child.start()
    there.close()
    try:
        answered = here.poll(SECONDS)
        found = here.recv() if answered else Found(None, f"no answer in {SECONDS} seconds")
    except EOFError:
        child.join()
        found = Found(None, f"the process ended with {child.exitcode}")
    child.kill()
    child.join()
    return Found(*found)


def _tell(answer: Connection, path: Path, device: str, n_prompt: int) -> None:
    try:
        answer.send(compare(path, device, n_prompt))
    except Exception as e:
        answer.send(Found(None, f"{type(e).__name__}: {e}"))


def compare(path: Path, device: str, n_prompt: int) -> Found:
    """Return the NMSE of all rows."""
    with GGUFFile.open(path) as file, tempfile.TemporaryDirectory() as folder:
        made = Tiny(keys={"vocab_size": _vocabulary(file)}, prompt=n_prompt)
        facts = facts_of(file.architecture, path, made)
        left_out = _left_out(file, path, made, facts)
        if left_out:
            kept = [t for name, t in file.tensors.items() if name not in left_out]
            path = Path(folder) / path.name
            replace_file(path, content(file.metadata.stored_values, kept))
        wanted = runs.exact if facts.logits else runs.RUNS["pooled-none"]
        theirs = runs.Case(made, facts, lambda **how: LlamaCpp(path, **how))
        ours = runs.Case(made, facts, lambda **how: Ours(path, device, **how))
        words = f" (without {len(left_out)} tensors)" if left_out else ""
        expected, found = _values(wanted(theirs)), _values(wanted(ours))
        if facts.logits and facts.memory and nmse(expected, found) > OTHER:
            right = _values(runs.exact(theirs, outputs="all"))
            if nmse(right, expected) > OTHER:
                expected, words = right, words + " (llama.cpp gives another row than asked for)"
        return Found(nmse(expected, found), words)


def nmse(expected: Floats, found: Floats) -> float:
    """Return the squared error relative to the squared expected values."""
    return float(np.square(expected - found).sum() / np.square(expected).sum())


def _values(result: runs.Result) -> Floats:
    return np.concatenate([*result.values.values()]).astype(np.float64)


def _left_out(file: GGUFFile, path: Path, made: Tiny, facts: runs.Facts) -> set[str]:
    """Return biases that no node of llama.cpp's graphs reads, and scales that have no matrix or
    fewer reads than their matrix."""
    case = runs.Case(made, facts, lambda **how: LlamaCpp(path, **how))
    run = runs.nodes if facts.logits else runs.RUNS["nodes-pooled-none"]
    reads = Counter(source["name"] for node in run(case).nodes for source in node["src"])
    biases = {name for name in file.tensors if name.endswith(".bias") and not reads[name]}
    scaled = {
        name: name.removesuffix("scale") + "weight"
        for name in file.tensors
        if name.endswith(".scale")
    }
    return biases | {
        name
        for name, weight in scaled.items()
        if weight not in file.tensors or reads[name] < max(1, reads[weight])
    }


def _vocabulary(file: Any) -> int:
    """Return the number of tokens, from the key or the vocabulary."""
    n = file.metadata.get(f"{file.architecture}.vocab_size")
    return int(n or len(file.metadata["tokenizer.ggml.tokens"]))


if __name__ == "__main__":
    sys.exit(main())
