#!/usr/bin/env python3
"""Compare each architecture with llama.cpp: batch splits, quantized files, saved state, OpenCL.

Writes docs/judged.md. Needs llama-cpp-python and an OpenCL device:
pip install '.[parity,opencl,pocl]'.

    python -m dev.compare.judge_architectures            # all; about ten seconds per tiny model
    python -m dev.compare.judge_architectures ARCH ...   # update the rows of some architectures
    python -m dev.compare.judge_architectures --new      # architectures without a row

Each tiny model runs in a separate process. Models that need a later llama.cpp (`Tiny.newest`):
`python -m dev.record.newest judge ARCH ...`.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dev import tiny_models as tiny
from dev.record.golden import judge as judging
from dev.record.golden.engines import LlamaCpp
from dev.record.golden.judge import Judged
from llama_py.models import known_architectures

ROOT = Path(__file__).parents[2]
DATA, PAGE = ROOT / "docs" / "judged.json", ROOT / "docs" / "judged.md"
SECONDS = 600
ENDED = re.compile(r"llama\.cpp/\S+:\d+: ")  # prefix of an assertion in llama.cpp
BOUNDS = {"f32": 3e-6, "q8": 2e-3, "q4": 2e-3, "fed": 1e-9, "kept": 1e-9, "opencl": 1e-6}

HEAD = """# Conformance of architectures

llama-py's results for each architecture, compared with llama.cpp's (llama-cpp-python 0.3.36, in one
process), and with its own for other splits of the batch. The table shows each
[tiny model](../llama_py/models/README.md) (`python -m dev.compare.judge_architectures`). The judge
of models that llama.cpp added later is its build b11739 (`python -m dev.record.newest judge`).

* **nodes**: runs whose node lists are llama.cpp's, name for name, shape for shape, of all: a prompt
  and a token, with flash attention and without, several sequences, and other features of the model
  (drafts, checkpoints, pooled embeddings)
* **F32, Q8_0, Q4_K_M**: NMSE of logits (or embeddings) against llama.cpp's, unquantized and
  quantized. If a row is shorter than a block, another type is used, like in llama-quantize. The
  latter two are the median of five prompts, as rounding may select another expert.
  Bounds: 3e-6, 2e-3, 2e-3
* **tokens**: greedy tokens that equal llama.cpp's
* **fed**: NMSE of token by token, of ubatches of 1, 7 and 16 and of two sequences together against
  one batch (bound 1e-9)
* **kept**: NMSE of the next token after another context loaded the saved state (bound
  1e-9)
* **OpenCL**: NMSE on the first OpenCL device (here the CPU, with PoCL or Intel's driver) against
  llama.cpp (bound 1e-6)

A dash: not applicable, or llama.cpp ends its process. **Bold**: above the bound.

"""
COLUMNS = (
    *("architecture", "model", "nodes", "F32", "Q8_0", "Q4_K_M", "tokens", "fed", "kept", "OpenCL"),
    *("judge", "date"),
)
JUDGES = "0.5.0", "b11739"  # versions of llama.cpp: the reference, and the newest


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison; return 0 if every cell is within its bound."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("archs", nargs="*", metavar="ARCH")
    p.add_argument("--new", action="store_true", help="only architectures without a row")
    args = p.parse_args(argv)
    os.environ["GGML_NO_BACKTRACE"] = "1"
    results: dict[str, dict[str, Any]] = json.loads(DATA.read_text()) if DATA.exists() else {}
    results = {arch: found for arch, found in results.items() if arch in known_architectures()}
    for arch, variant in tiny.every():
        there = variant in results.get(arch, {})
        skipped = tiny.find(arch, variant).newest or (args.new and there)
        if skipped or (args.archs and arch not in args.archs):
            continue
        found = apart(arch, variant)
        print(f"{arch} {variant}: {found}", flush=True)
        results.setdefault(arch, {})[variant] = found
        write(results)
    return int(any("**" in line for line in rows(results)))


def apart(arch: str, variant: str, engine: type[LlamaCpp] = LlamaCpp) -> Any:
    """Check a tiny model in a separate process; return the results, or a message.

    If llama.cpp ends the process, check again without quantized files.
    """
    with tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="replace") as errors:
        found = _once(arch, variant, judging.QUANTIZED, errors.name, engine)
        if isinstance(found, str) and ENDED.search(errors.read()):
            found = _once(arch, variant, (), errors.name, engine)
    return found


def _once(
    arch: str, variant: str, types: Sequence[str], errors: str, engine: type[LlamaCpp]
) -> Any:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_tell, args=(there, arch, variant, types, errors, engine))
    child.start()
    there.close()
    try:
        found = here.recv() if here.poll(SECONDS) else f"no answer in {SECONDS} seconds"
    except EOFError:
        child.join()
        found = f"the process ended with {child.exitcode}"
    child.kill()
    child.join()
    return found


def _tell(
    answer: Connection,
    arch: str,
    variant: str,
    types: Sequence[str],
    errors: str,
    engine: type[LlamaCpp],
) -> None:
    os.dup2(os.open(errors, os.O_WRONLY | os.O_TRUNC), 2)
    try:
        answer.send(judging.stored(judging.judge(arch, variant, types, engine)))
    except Exception as e:
        answer.send(f"{type(e).__name__}: {e}")


def write(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the results as data, and as the page docs/judged.md."""
    DATA.write_text(json.dumps(dict(sorted(results.items())), indent=0) + "\n", encoding="utf-8")
    PAGE.write_text(page(results), encoding="utf-8")


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    return HEAD + "\n".join([*rows(results), "", summary(results), ""])


def rows(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    for arch, models in sorted(results.items()):
        for variant, found in models.items():
            if isinstance(found, str):
                cells = [f"**{found}**", *([""] * (len(COLUMNS) - 3))]
            else:
                judge = JUDGES[tiny.find(arch, variant).newest]
                cells = [*cells_of(judging.read(found)), judge, found["date"]]
            lines.append(f"| {' | '.join([f'`{arch}`', variant, *cells])} |")
    return lines


def cells_of(j: Judged) -> list[str]:
    return [
        _count(j.nodes, j.n_nodes),
        *(_error(j, name) for name in ("f32", "q8", "q4")),
        _count(j.tokens, j.n_tokens),
        *(_error(j, name) for name in ("fed", "kept", "opencl")),
    ]


def _count(n: int, of: int) -> str:
    text = f"{n} of {of}" if of else "-"
    return text if n == of else f"**{text}**"


def _error(j: Judged, name: str) -> str:
    value: float = getattr(j, name)
    if math.isnan(value):
        return "-"
    text = f"{value:.1e}" if value else "0"
    return text if value <= BOUNDS[name] else f"**{text}**"


def summary(results: Mapping[str, Mapping[str, Any]]) -> str:
    beyond = sum("**" in line for arch in results for line in rows({arch: results[arch]}))
    n = sum(map(len, results.values()))
    return (
        f"{n - beyond} of {n} models, of {len(results)} architectures, have every cell within its "
        "bound."
    )


if __name__ == "__main__":
    sys.exit(main())
