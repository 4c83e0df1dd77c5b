"""Files of the tools: op cases, node lists, lookup caches."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from random import Random
from typing import Any

import llama_py
from fuzz import numbers
from fuzz.damage import damaged
from fuzz.kind import Case, Kind
from fuzz.models import memories
from ggml_cpu.backend import devices as cpu_devices
from ggml_py.dump import records
from ggml_py.graph import Graph
from ggml_ref.backend import devices as ref_devices
from llama_py.speculative.drafters.ngram_cache import read_counts
from llama_py_tools.graph.main import main as graph_main
from llama_py_tools.test_backend_ops.op_file import lines, read_cases
from llama_py_tools.test_backend_ops.run import evaluate

SMALL = 1 << 22  # elements of a case that is computed


def graphs(folder: Path) -> list[Graph]:
    """Of a prompt, of some tiny models."""
    found: list[Graph] = []
    for path in memories(folder):
        model = llama_py.load(path, device="null")
        with model, model.context(n_ctx=32) as ctx:
            ctx.on_graph = lambda res, _: found.append(res.graph)
            ctx.decode([1, 2, 3])
    return found


class OpFiles(Kind):
    """files of op cases (test-backend-ops --test-file)"""

    name = "ops"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lines = list(lines(graphs(folder)))
        self.cpu, self.ref = cpu_devices()[0], ref_devices()[0]

    def case(self, rng: Random) -> Case:
        words = rng.choice(self.lines).split()
        told = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            at = rng.randrange(len(words))
            what = rng.randrange(8)
            if what == 0:
                del words[at:]
            elif what == 1:
                words.insert(at, str(rng.choice(numbers.INTEGERS)))
            elif what == 2:
                words[at] = rng.choice(("nan", "1.5", "x", "\x1b[2J", "é", "0x10", "٣", "9" * 5000))
            else:
                near = words[at].lstrip("-").isdecimal() and len(words[at]) < 19
                words[at] = str(numbers.integer(rng, int(words[at]) if near else None))
            told.append(f"word {at}")
            if not words:
                break
        line = " ".join(words)
        path = self.folder / "ops.txt"

        def run() -> str:
            path.write_text(line + "\n", errors="surrogateescape")
            found = read_cases(path)
            for one in found:
                graph = one.graph()[0]
                if sum(t.nbytes for t in (*graph.nodes, *graph.leafs)) > SMALL:
                    return "large"
                return str(evaluate(one, self.cpu, self.ref).status)
            return "nothing"

        return Case(f"{', '.join(told)}: {line[:600]!a}", run)


class NodeLists(Kind):
    """node lists (llama-py-graph diff)"""

    name = "nodes"

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
    """Run it; what it printed must be harmless too."""
    from fuzz.judge import harmful
    from ggml_py.errors import GGMLError

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command()
    for line in (out.getvalue() + err.getvalue()).splitlines():
        if harmful(line):
            raise AssertionError(f"printed raw: {line!a}")
    if err.getvalue():
        raise GGMLError(err.getvalue().strip().replace("\n", " / "))
    return f"exit {code}: {out.getvalue()[:100]}"


class LookupCaches(Kind):
    """lookup caches (-lcs, -lcd), and drafts made of them"""

    name = "lookup"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        models = [llama_py.load(path, device="cpu") for path in memories(folder)]
        self.model = next(m for m in models if m.hparams.causal_attn and not m.has_encoder)

    def case(self, rng: Random) -> Case:
        data = b""
        for _ in range(rng.randint(1, 6)):
            n = rng.randint(1, 3)
            gram = [rng.randrange(8) for _ in range(rng.randint(1, 4))]
            words = [*gram, *[-1] * (4 - len(gram)), n]
            for _ in range(n):
                words.append(rng.choice((1, 2, 3, 63, 64, 2**31 - 1, -1)))
                words.append(rng.choice((1, 5, 2**31 - 1)))
            data += b"".join(w.to_bytes(4, "little", signed=True) for w in words)
        words_, changed = damaged(rng, data, 200) if rng.random() < 0.7 else ("as it is", data)
        path = self.folder / "lookup.bin"
        ids = [rng.randrange(8) for _ in range(6)]

        def run() -> str:
            path.write_bytes(changed)
            n = len(read_counts(path))
            with self.model.context(n_ctx=64, n_threads=1) as ctx:
                key = rng.choice(("lookup_cache_static", "lookup_cache_dynamic"))
                how = {"spec_type": "ngram-cache", key: str(path)}
                done = [p.token for p in llama_py.stream(ctx, ids, max_tokens=6, **how)]
            return f"{n} keys, {len(done)} tokens"

        return Case(f"{words_}: {changed.hex()}", run)
