"""Node lists: one node per line, as JSON."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from random import Random
from typing import Any

from dev.torture.fuzz.damage import damaged
from dev.torture.fuzz.judge import harmful
from dev.torture.fuzz.kind import Case, Kind
from dev.torture.fuzz.models import graphs
from ggml_py.errors import GGMLError
from ggml_py.inspection.dump import records
from llama_py_tools.graph.main import main as graph_main


class NodeLists(Kind):
    """node lists (llama-py-graph diff)"""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.records = records(graphs(folder)[0])
        self.good = folder / "good.jsonl"
        self.good.write_text("".join(json.dumps(r) + "\n" for r in self.records))

    def case(self, rng: Random) -> Case:
        rows: list[Any] = [dict(r) for r in self.records]
        told = []
        for _ in range(rng.choice((1, 1, 2))):
            i = rng.randrange(len(rows))
            key = rng.choice((*self.records[0], "more"))
            what = rng.randrange(5)
            if what == 0:
                del rows[i:]
            elif what == 1:
                rows[i] = rng.choice((None, [], 1, {}, "x", {"name": 1}, {"name": [], "dec": {}}))
            elif what == 2 and isinstance(rows[i], dict):
                rows[i].pop(key, None)
            elif isinstance(rows[i], dict):
                rows[i][key] = rng.choice((None, [], {}, -1, 2**70, "\x1b[2J", "a\nb", [[]], "é"))
            told.append(f"row {i} {what} {key}")
            if not rows:
                break
        data = "".join(json.dumps(r) + "\n" for r in rows).encode()
        if rng.random() < 0.3:
            words, data = damaged(rng, data, 5000)
            told.append(words)
        if rng.random() < 0.1:
            deep = rng.choice((10, 1000, 100000))
            data = b'{"dec":' + b"[" * deep + b"]" * deep + b"}\n"
        path = self.folder / "nodes.jsonl"
        files = [str(self.good), str(path)]
        if rng.random() < 0.5:
            files.reverse()

        def run() -> str:
            path.write_bytes(data)
            return printed(lambda: graph_main(["diff", *files]))

        return Case("; ".join(told), run)


def printed(command: Any) -> str:
    """Run a command and return its output, which must be harmless."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command()
    for line in (out.getvalue() + err.getvalue()).splitlines():
        if harmful(line):
            raise AssertionError(f"printed raw: {line!a}")
    if err.getvalue():
        raise GGMLError(err.getvalue().strip().replace("\n", " / "))
    return f"exit {code}: {out.getvalue()[:100]}"
