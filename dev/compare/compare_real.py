#!/usr/bin/env python3
"""Compare real model files with llama.cpp's own programs and write docs/real.md.

    python -m dev.compare.compare_real --llama-cpp BUILD/bin --text TEXT FILE.gguf...

Build llama-server, llama-perplexity and llama-imatrix of the reference version first. TEXT has a
few thousand words. The docs page explains the columns of the table.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import llama_py
from llama_py.quantize.imatrix.file import read_imatrix
from llama_py.support.whole_file import replace_file

PAGE = Path(__file__).resolve().parents[2] / "docs" / "real.md"
PORT, SECONDS = 18099, 120
N_CTX, CHUNKS, N_PREDICT = 512, 4, 32
PROMPTS = ("The capital of France is", "Once upon a time", "def add(a, b):", "1 2 3 4 5 6")
CHAT = [
    {"role": "system", "content": "Answer in one sentence."},
    {"role": "user", "content": "Who are you?"},
    {"role": "assistant", "content": "A model."},
    {"role": "user", "content": "What is 2 + 2?"},
]
N_TOP, N_BEST = 64, 10  # most likely tokens that engines return, and compared tokens
Row = dict[str, str]
FloatArray = npt.NDArray[np.float64]


class Step(NamedTuple):
    """Token of a response, and log probabilities of the most likely tokens at its position."""

    id: int
    top: Mapping[int, float]


class Reference:
    """Programs of llama.cpp in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "LD_LIBRARY_PATH": str(folder)}

    def run(self, program: str, *words: object) -> str:
        """Run a program to its end and return its output."""
        line = [str(self.folder / program), *map(str, words)]
        done = subprocess.run(line, capture_output=True, text=True, env=self.env, check=False)
        if done.returncode:
            sys.exit(f"{program}: {done.stderr[-300:]}")
        return done.stdout + done.stderr

    @contextmanager
    def server(self, *words: object) -> Iterator[None]:
        """Run llama-server during a `with` block."""
        line = [self.folder / "llama-server", "--port", PORT, "-np", 1, *words]
        out = subprocess.DEVNULL
        process = subprocess.Popen([*map(str, line)], stdout=out, stderr=out, env=self.env)
        try:
            until = time.monotonic() + SECONDS
            while not _is_healthy():
                if process.poll() is not None or time.monotonic() > until:
                    sys.exit("llama-server: it does not start")
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            process.wait()


def _is_healthy() -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=5).close()
    except (urllib.error.URLError, OSError):
        return False
    return True


def ask(path: str, body: Any) -> Any:
    """Send JSON to llama-server and return its response."""
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.loads(answer.read())


def compare(path: Path, reference: Reference, text: Path) -> tuple[Row, list[Row]]:
    """Compare one file; return its row, and a row for each text that differs."""
    model = llama_py.load(path, "cpu")
    row, parted = {"model": path.stem}, list[Row]()
    encoder = not model.hparams.causal_attn
    flags = ["--embedding", "--pooling", "mean"] if encoder else ["-c", N_CTX]
    parts = [p for p in text.read_text("utf-8").split("\n\n") if p.strip()][:200]
    with reference.server("-m", path, *flags):
        row["tokens"] = _share(
            [
                ask("/tokenize", {"content": p, "add_special": True})["tokens"]
                == [*model.tokenizer.tokenize(p)]
                for p in parts
            ]
        )
        if encoder:
            row["embeddings"] = _embeddings(model, parts[:40])
        else:
            found, parted = _generated(model, path)
            row |= found
    return row if encoder else {**row, **_measured(path, reference, text)}, parted


def _share(equal: Sequence[bool]) -> str:
    return f"{sum(equal)} of {len(equal)}"


def _embeddings(model: Any, texts: Sequence[str]) -> str:
    texts = [t[:400] for t in texts]
    theirs = [d["embedding"] for d in ask("/v1/embeddings", {"input": texts})["data"]]
    error = np.square(model.embed(texts, pooling="mean") - np.array(theirs)).sum(-1)
    return f"{error.max():.1e}"


def _generated(model: Any, path: Path) -> tuple[Row, list[Row]]:
    """Return the columns about texts, and a row for each prompt with different texts."""
    parted, exact = [], Exact(path)
    for prompt in PROMPTS:
        body = {
            "prompt": prompt,
            "n_predict": N_PREDICT,
            "temperature": 0,
            "cache_prompt": False,
            "n_probs": N_TOP,
        }
        pieces = model.stream(prompt, max_tokens=N_PREDICT, temp=0, logprobs=N_TOP)
        ours = [Step(p.token, dict(p.top)) for p in pieces if p.token is not None]
        theirs = [
            Step(t["id"], {c["id"]: c["logprob"] for c in t["top_logprobs"]})
            for t in ask("/completion", body)["completion_probabilities"]
        ]
        n = next(
            (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a.id != b.id), None
        )
        if n is not None:
            steps = exact(prompt, [step.id for step in ours[:n]])
            row = part(ours[: n + 1], theirs[: n + 1], steps)
            names = (repr(model.tokenizer.detokenize([s[n].id])) for s in (ours, theirs))
            head = {"model": path.stem, "prompt": prompt, "token": f"{n + 1}"}
            parted.append({**head, "ours, llama.cpp's": " ".join(f"`{x}`" for x in names), **row})
    found = ask("/apply-template", {"messages": CHAT})["prompt"]
    n_same = len(PROMPTS) - len(parted)
    return {
        "chat prompt": "equal" if model.apply_chat_template(CHAT) == found else "differs",
        "greedy": f"{n_same} of {len(PROMPTS)}",
    }, parted


class Exact:
    """Log probabilities of a model in float64; only the weights are rounded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def context(self) -> Any:
        """The context on the reference device."""
        how = {"type_k": "f32", "type_v": "f32", "flash_attn": "off"}
        return llama_py.load(self.path, "ref").context(N_CTX, **how)

    def __call__(self, prompt: str, ids: Sequence[int]) -> FloatArray:
        """Return the log probabilities of the next tokens, one row per token."""
        first = self.context.model.tokenize(prompt)
        self.context.clear()
        rows = self.context.decode([*first, *ids], logits="all")[len(first) - 1 :]
        rows = rows.astype(np.float64) - rows.max(-1, keepdims=True)
        return np.asarray(rows - np.log(np.exp(rows).sum(-1, keepdims=True)))


def part(ours: Sequence[Step], theirs: Sequence[Step], exact: FloatArray) -> Row:
    """Compare log probabilities up to the first token that differs."""
    a, b = ours[-1].id, theirs[-1].id
    margins = [row[a] - row[b] for row in (exact[-1], ours[-1].top, theirs[-1].top)]
    likely = np.argsort(-exact, axis=-1)[:, :N_BEST]
    errors = []
    for steps in (ours, theirs):
        off = [
            step.top[id] - row[id]
            for step, row, ids in zip(steps, exact, likely, strict=True)
            for id in ids.tolist()
            if id in step.top
        ]
        errors.append(math.sqrt(np.square(off).mean()))
    return {
        "margin: exact": f"{margins[0]:+.4f}",
        "margin: ours": f"{margins[1]:+.4f}",
        "margin: llama.cpp": f"{margins[2]:+.4f}",
        "error: ours": f"{abs(margins[1] - margins[0]):.4f}",
        "error: llama.cpp": f"{abs(margins[2] - margins[0]):.4f}",
        "RMS error: ours": f"{errors[0]:.4f}",
        "RMS error: llama.cpp": f"{errors[1]:.4f}",
        "nearer": "ours" if errors[0] < errors[1] else "llama.cpp",
    }


def _measured(path: Path, reference: Reference, text: Path) -> Row:
    """Compare perplexity and logits, and the importance matrix."""
    with tempfile.TemporaryDirectory() as folder:
        base, theirs, ours = (Path(folder) / name for name in ("base", "theirs.gguf", "ours.gguf"))
        common = ("-m", path, "-f", text, "-c", N_CTX, "--chunks", CHUNKS)
        said = reference.run("llama-perplexity", *common, "--kl-divergence-base", base)
        mine = _ours(
            "llama-py-perplexity", *common, "--kl-divergence-base", base, "--kl-divergence"
        )
        reference.run("llama-imatrix", *common, "-o", theirs, "--no-ppl")
        _ours("llama-py-imatrix", *common, "-o", ours, "--no-ppl")
        return {
            "perplexity": _number(r"Final estimate: PPL = ([\d.]+)", said),
            "ours": _number(r"Mean PPL\(Q\)\s*:\s*([\d.]+)", mine),
            "mean KLD": _number(r"Mean\s+KLD:\s*(-?[\d.]+)", mine),
            "same top token": _number(r"Same top p:\s*([\d.]+)", mine) + " %",
            "imatrix": imatrix_error(ours, theirs),
            "Q2_K": ", ".join(_coarse(path, m, common[2:], base) for m in (ours, theirs, None)),
        }


def _coarse(path: Path, matrix: Path | None, common: Sequence[object], base: Path) -> str:
    """Return the mean KLD of a Q2_K file made with an importance matrix."""
    made = base.with_name("q2_k.gguf")
    how = () if matrix is None else ("--imatrix", matrix)
    _ours("llama-py-gguf", "quantize", "--force", "--allow-requantize", *how, path, made, "Q2_K")
    words = ("--kl-divergence-base", base, "--kl-divergence")
    said = _ours("llama-py-perplexity", "-m", made, *common, *words)
    return _number(r"Mean\s+KLD:\s*(-?[\d.]+)", said)


def _ours(command: str, *words: object) -> str:
    program = Path(sys.executable).parent / command
    done = subprocess.run(
        [str(program), *map(str, words)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{command}: {done.stderr[-300:]}")
    return done.stdout + done.stderr


def _number(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else "?"


def imatrix_error(ours: Path, theirs: Path) -> str:
    """Return the largest and the median relative error of a matrix's sums."""
    a, b = read_imatrix(ours).entries, read_imatrix(theirs).entries
    errors = []
    for name in a.keys() & b.keys():
        x, y = (e[name].sums.astype(np.float64) / e[name].counts.sum() for e in (a, b))
        errors.append(float(np.abs(x - y).sum() / y.sum()))
    same = "" if a.keys() == b.keys() else f"; {len(a.keys() ^ b.keys())} are in one only"
    return f"{max(errors):.2%} ({np.median(errors):.2%}){same}"


HEAD = """# Real models

Published model files, run by llama-py and by llama.cpp's programs
(`python -m dev.compare.compare_real`).

* **tokens**: paragraphs of a text that give the same tokens
* **chat prompt**: a conversation rendered by the file's template
* **greedy**: prompts whose next 32 tokens are the same text at temperature 0. The second table has
  the first token of the others
* **perplexity, ours**: of 4 chunks of 512 tokens. **mean KLD**: of our logits from llama.cpp's
* **imatrix**: largest error (median) of a matrix's sums, relative to llama-imatrix's. Both engines
  round activations: for 256 tokens of the 270M model, ours is 3.2 % from our float64 reference in
  `blk.17.attn_output`, llama.cpp 3.6 %. The error falls with the number of tokens.
* **Q2_K**: mean KLD from llama.cpp's logits of the file, of Q2_K files made with our matrix, with
  llama-imatrix's, and without one
* **embeddings**: largest squared distance of two vectors of length 1
"""
PARTED = """
## First different tokens

Both engines round activations to 8 bits and the KV cache to F16. Our reference device computes the
same weights in float64 and rounds neither. At the first token that differs:

* **margin**: logit of our token minus the logit of llama.cpp's, as computed by the reference
  device (exact), by us and by llama.cpp
* **error**: difference of the engine's margin from the exact one. An engine with an error above the
  exact margin may choose the other token
* **RMS error**: root mean square error of log probabilities of the reference's 10 most likely
  tokens, over all tokens up to there
* **nearer**: the engine with the smaller RMS error

Without rounding the engines agree: for SmolLM2 converted to F32, with F32 KV caches and without
flash attention (`quantize --allow-requantize`, `-ctk f32 -ctv f32 -fa off`), 4 of 4 texts are
equal.

"""


def page(rows: Sequence[Row], parted: Sequence[Row] = ()) -> str:
    """Return the page: a table of all files, and a table of texts that differ."""
    if not parted:
        return HEAD + "\n" + table(rows)
    errors = [key for key in parted[0] if key.startswith("RMS")]
    means = {key: f"{np.mean([float(row[key]) for row in parted]):.4f}" for key in errors}
    return HEAD + "\n" + table(rows) + PARTED + table([*parted, {"model": "mean", **means}])


def table(rows: Sequence[Row]) -> str:
    """Return a table with the columns of all rows."""
    columns = [*dict.fromkeys(key for row in rows for key in row)]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines += [f"| {' | '.join(row.get(key, '-') for key in columns)} |" for row in rows]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Compare the files and write the page; return 0."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("files", nargs="+", type=Path, metavar="FILE.gguf")
    p.add_argument("--llama-cpp", type=Path, required=True, metavar="DIR", help="its programs")
    p.add_argument("--text", type=Path, required=True, help="a text file")
    o = p.parse_args(argv)
    reference = Reference(o.llama_cpp.resolve())
    rows, parted = [], []
    for path in o.files:
        row, others = compare(path, reference, o.text)
        rows.append(row)
        parted += others
        print(row, *others, sep="\n", flush=True)
    replace_file(PAGE, [page(rows, parted).encode()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
