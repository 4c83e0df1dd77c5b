#!/usr/bin/env python3
"""Count false alarms and missed faults of `--check ref` and llama-py-graph diff.

Writes docs/alarms.md from docs/alarms.json, which keeps the rows of earlier runs.

    python -m dev.compare.judge_alarms               # outlier models and planted faults
    python -m dev.compare.judge_alarms MODEL.gguf ... # only these files
    python -m dev.compare.judge_alarms -n 100 ...      # 100 tokens

Real models are from the Hugging Face Hub; see docs/real.md.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dev.compare.alarms.faults import FAULTS, Fault, planted
from dev.compare.alarms.models import OUTLIERS, build
from dev.compare.alarms.runs import check, diff, graph_nodes

DOCS = Path(__file__).resolve().parents[2] / "docs"
FAR = 131_072
HEAD = """# False alarms and planted faults

Reliability of `--check ref` and [`llama-py-graph diff --against ref`](diff.md): they must report
each planted fault and no correct node. Both use `ggml_py/inspection/judge.py`
(`python -m dev.compare.judge_alarms`).

## False alarms

Each cell is the number of nodes compared, all of them right. An outlier model is a tiny model whose
norms have one weight that is 60 or 1000 times another.

* **--check**: cpu, from position 0; in parentheses the number of tokens
* **131,072**: the same, up to this position
* **opencl**: device `opencl0`, 40 tokens
* **diff**: `llama-py-graph diff --against ref`; in parentheses the number of tokens

"""
FAULTY = """
## Planted faults

One row of one node is 1 % too large. Each command must name this node.

* **fused**: with the default, several nodes as one step
* **node by node**: with `--no-fuse`, because a fused step computes the node without storing it

"""
Row = dict[str, str]


def main() -> int:
    """Return 0 if correct models raise no alarm and each planted fault is found."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("models", nargs="*", type=Path, metavar="MODEL.gguf")
    p.add_argument("-n", type=int, default=500, help="tokens for --check (default: 500)")
    p.add_argument("--diff", type=int, default=100, help="tokens for diff (default: 100)")
    p.add_argument("--faults", action="store_true", help="plant faults only")
    p.add_argument("--opencl", action="store_true", help="also check device opencl0")
    args = p.parse_args()
    logging.getLogger("llama_py").setLevel(logging.ERROR)
    stored = DOCS / "alarms.json"
    rows: dict[str, dict[str, Row]] = json.loads(stored.read_text())
    with tempfile.TemporaryDirectory() as folder:
        for kind, name, row in _results(args, Path(folder)):
            print(name, *row.values(), sep=" | ", flush=True)
            rows[kind][name] = {**rows[kind].get(name, {}), **row}
            stored.write_text(json.dumps(rows, indent=1) + "\n")
            (DOCS / "alarms.md").write_text(page(rows))
    return int(
        any(is_bad(cell) for kind in rows.values() for r in kind.values() for cell in r.values())
    )


def _results(args: argparse.Namespace, folder: Path) -> Iterator[tuple[str, str, Row]]:
    made = () if args.faults else OUTLIERS
    for path in args.models or [build(one, folder) for one in made]:
        yield "alarms", path.stem, alarms(path, args.n, args.diff, args.opencl)
    for fault in FAULTS if not args.models else ():
        yield "faults", fault.name, found(fault, build(fault.model, folder))


def alarms(path: Path, n: int, n_diff: int, opencl: bool) -> Row:
    """Check a correct model and return the cells of its row."""
    row = {"--check": check(path, n), "131,072": check(path, 40, FAR)}
    if opencl:
        row["opencl"] = check(path, 40, device="opencl0")
    return row | {"diff": diff(path, n_diff)[0]}


def found(fault: Fault, path: Path) -> Row:
    """Plant a fault, and check that each command names its node."""
    node = fault.node(graph_nodes(path, 24, fault.options))
    with planted(node) as planter:
        checked = check(path, 24, options=fault.options)
        told, fuse = diff(path, 24, fault.options), "fused"
        if planter.is_inner:  # the fused kernel does not store this node
            told, fuse = diff(path, 24, [*fault.options, "--no-fuse"]), "node by node"
    named = re.findall(r"ALARM (.*?): [A-Z_]+\d?\(", checked)
    return {
        "node": node,
        "--check": "found" if named == [node] else f"MISSED {checked}",
        "diff": f"found, {fuse}" if node in told[1] else f"MISSED {told}",
    }


def is_bad(cell: str) -> bool:
    """Return True for an alarm without a fault, or a fault without an alarm."""
    return cell.startswith(("ALARM", "MISSED"))


def page(rows: dict[str, dict[str, Row]]) -> str:
    """Return the Markdown page with both tables."""
    faults = _table("op, type of its first source, model", rows["faults"])
    return HEAD + _table("model", rows["alarms"]) + FAULTY + faults


def _table(first: str, rows: dict[str, Row]) -> str:
    columns = list(dict.fromkeys(c for row in rows.values() for c in row))
    lines = [[first, *columns], ["---"] * (1 + len(columns))]
    lines += [[name, *(row.get(c, "-") for c in columns)] for name, row in rows.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
