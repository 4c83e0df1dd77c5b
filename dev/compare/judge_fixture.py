#!/usr/bin/env python3
"""Compare llama-py with llama.cpp on the model files of llama.cpp's test `test-llama-archs`.

Writes docs/fixture.md, and the data that CI compares with (tests/data/fixture.json.xz). Needs
llama-cpp-python (pip install '.[parity]') and a built llama.cpp of the same version.

    BUILD/bin/test-llama-archs -s 1234 -o DIR    # takes a few seconds, writes 900 MB
    python -m dev.compare.judge_fixture DIR            # takes three seconds per file
    python -m dev.compare.judge_fixture DIR NAME ...   # compares only these; writes no file

Each model file is compared in a separate process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from queue import Empty
from typing import Any

from dev.record.golden import fixture
from dev.record.golden.engines import LlamaCpp, Ours
from ggml_py.inspection.dump import diff
from llama_py.gguf.file import GGUFFile
from llama_py.models import architecture

PAGE = Path(__file__).parents[2] / "docs" / "fixture.md"
SECONDS = 300
BOUND = 1e-5
HEAD = """# llama.cpp's test models

Nodes and logits of the model files that llama.cpp's test `test-llama-archs` writes, compared with
llama.cpp in one process (llama-cpp-python 0.3.36; `test-llama-archs -s 1234 -o DIR`, then
`python -m dev.compare.judge_fixture DIR`).

* **nodes**: number of nodes of a prompt of 40 tokens and one more token. Names, shapes, strides,
  parameters and sources of all of them are llama.cpp's, with flash attention and without. "b11739":
  this later build has other nodes, and llama-py has its nodes
* **NMSE**: of the logits of the prompt against llama.cpp's (F32 cache, no flash attention).
  Bound: 1e-5
* **CI**: CI compares the file's logits too; it compares the node lists of all files

"""


def main() -> int:
    """Return 0 if every file has llama.cpp's nodes and logits."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("folder", type=Path, metavar="DIR")
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument(
        "--ci",
        action="append",
        metavar="NAME",
        help="store the logits of this file for CI; may be repeated (default: stored files)",
    )
    args = p.parse_args()
    os.environ["GGML_NO_BACKTRACE"] = "1"
    paths = sorted(args.folder.glob("*.gguf"))
    judged: dict[str, dict[str, Any]] = {}
    for name, path in ((path.stem, path) for path in paths):
        if not args.names or name in args.names:
            judged[name] = newest(name) or apart(path, name in (args.ci or fixture.names()))
            print(name, judged[name]["said"], flush=True)
    if not args.names:
        fixture.save({name: one["stored"] for name, one in judged.items()})
        PAGE.write_text(page(judged), encoding="utf-8")
    return int(not all(map(is_right, judged.values())))


def newest(name: str) -> dict[str, Any] | None:
    """Return recorded results if the nodes are llama.cpp b11739's (`python -m dev.record.newest
    fixture FILE`), else None."""
    stored = fixture.stored().get(name, {})
    found = stored.get("newest")
    return found and {
        **found,
        "said": f"{found['n']} nodes of b11739",
        "diff": "",
        "stored": stored,
    }


def apart(path: Path, logits: bool) -> dict[str, Any]:
    """Compare a file in a separate process, because llama.cpp may abort it."""
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    child = context.Process(target=_judge, args=(answers, path, logits))
    child.start()
    try:
        found: dict[str, Any] = answers.get(timeout=SECONDS)
    except Empty:
        found = {"said": f"no result within {SECONDS} seconds", "stored": {}}
    child.kill()
    child.join()
    return found


def _judge(answers: Any, path: Path, logits: bool) -> None:
    try:
        answers.put(judge(path, logits))
    except Exception as e:
        answers.put({"said": f"{type(e).__name__}: {e}", "stored": {}})


def judge(path: Path, logits: bool) -> dict[str, Any]:
    """Compare a file on both engines; include llama.cpp's logits if `logits` is True."""
    with GGUFFile.open(path) as file:
        kind = architecture(file.architecture)
        memory = bool(kind.HParams(file.metadata, kind.arch).cached)
    forms = fixture.stored().get(path.stem, {}).get("forms", {})
    stored = fixture.described(path) | {"memory": memory, "nodes": {}}
    stored |= {"forms": forms} if forms else {}
    said = ""
    for flash in (True, False):
        with LlamaCpp(path, nodes=True, flash=flash) as peer:
            theirs = fixture.list_nodes(peer, memory)
        with Ours(path, "null", nodes=True, flash=flash, forms=forms) as ours:
            said = said or str(diff(fixture.list_nodes(ours, memory), theirs) or "")
        stored["nodes"]["on" if flash else "off"] = fixture.digest(theirs)
        n = len(theirs)
    with LlamaCpp(path, flash=False, cache="f32") as peer:
        expected = fixture.logits(peer)
    with Ours(path, flash=False, cache="f32") as ours:
        error = fixture.nmse(expected, fixture.logits(ours))
    if logits:
        stored["logits"] = [[float(f"{x:.8g}") for x in row] for row in expected.tolist()]
    return {
        "said": said or f"{n} nodes, NMSE {error:.1e}",
        "n": n,
        "nmse": error,
        "diff": said,
        "stored": stored,
    }


def is_right(found: Mapping[str, Any]) -> bool:
    return "nmse" in found and not found["diff"] and found["nmse"] <= BOUND


def page(judged: Mapping[str, Mapping[str, Any]]) -> str:
    lines = ["| file | nodes | NMSE | CI |", "|---|---|---|---|"]
    for name, one in judged.items():
        if "nmse" in one:
            nodes = f"**{one['diff']}**" if one["diff"] else str(one["n"])
            nodes += " (b11739)" * ("newest" in one["stored"])
            cells = [nodes, f"{one['nmse']:.1e}", "yes" * ("logits" in one["stored"])]
        else:
            cells = [f"**{one['said']}**", "", ""]
        lines.append(f"| {' | '.join([f'`{name}`', *cells])} |")
    right = sum(map(is_right, judged.values()))
    have = f"have llama.cpp's nodes and, within {BOUND:g}, its logits."
    total = f"{right} of {len(judged)} files {have}"
    return HEAD + "\n".join([*lines, "", total, ""])


if __name__ == "__main__":
    sys.exit(main())
