"""One run of each command on a model."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import llama_py
from ggml_py.inspection.check import CheckFailed
from ggml_py.tensor import Tensor
from llama_py.batch import Batch
from llama_py_tools.graph.main import main as graph

OPTIONS = {"-fa": "flash_attn", "-ctk": "type_k", "-ctv": "type_v"}
TEXT = Path(__file__).resolve().parents[3] / "docs" / "diff.md"


def tokens(model: llama_py.Model, n: int) -> list[int]:
    """Return tokens of a page in English, or of a vocabulary without texts."""
    n_vocab = model.hparams.n_vocab
    if n_vocab < 1000:
        return [(7 + 11 * i) % n_vocab for i in range(n)]
    ids = list(model.tokenize(TEXT.read_text()))
    return (ids * (1 + n // len(ids)))[:n]


def graph_nodes(path: Path, n: int, options: Sequence[str] = ()) -> list[Tensor]:
    """Return the nodes of a prompt's graph."""
    found: list[Tensor] = []
    with (
        llama_py.load(path, device="null") as model,
        model.context(n_ctx=n + 8, **_chosen(options)) as ctx,
    ):
        ctx.on_graph = lambda res, _: found.extend(res.graph.nodes)
        ctx.decode(tokens(model, n), logits="all")
    return found


def _chosen(options: Sequence[str]) -> dict[str, Any]:
    pairs = zip(options[::2], options[1::2], strict=True)
    return {OPTIONS[name]: value for name, value in pairs}


def check(
    path: Path, n: int, last: int = 0, device: str = "cpu", options: Sequence[str] = ()
) -> str:
    """Run `--check ref` on a prompt of `n` tokens and one more token.

    Args:
        path: Model file.
        n: Tokens of the prompt.
        last: Position of the last one (default: n - 1).
        device: Device that computes the model.
        options: Options of the commands (`OPTIONS`).
    """
    with llama_py.load(path, device=device, n_gpu_layers=-1) as model:
        ids = tokens(model, n + 1)
        with model.context(n_ctx=n + 8, check="ref", **_chosen(options)) as ctx:
            pos = np.arange(n + 1, dtype=np.int32) + (last - n + 1 if last else 0)
            try:
                for part in (slice(n), slice(n, n + 1)):
                    chosen = np.array(ids[part], np.int32)
                    outputs = [False] * (len(chosen) - 1) + [True]
                    ctx.decode(Batch(chosen, None, pos[part], [(0,)] * len(chosen), outputs))
            except CheckFailed as e:
                return f"ALARM {e}"
            return f"{ctx.checker.n_checked} ({n})"


def diff(path: Path, n: int, options: Sequence[str] = ()) -> tuple[str, list[str]]:
    """Run llama-py-graph diff --against ref.

    Returns:
        Nodes compared, or the alarm; and the nodes of the step that is named first.
    """
    with llama_py.load(path, device="null") as model:
        ids = ",".join(map(str, tokens(model, n)))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = graph(["diff", "-m", str(path), "--tokens", ids, "--against", "ref", *options])
    report = out.getvalue()
    compared = re.findall(r"^values: (\d+) nodes", report, re.M)
    if code or not compared:
        named = re.findall(r"^first wrong node: (.*?)  \(", report, re.M)
        step = re.findall(r"^  one step computes ((?:.|\n    )*)\n  [^ ]", report, re.M)
        problem = re.findall(r"^  (?:NMSE|row|column) .*", report, re.M)
        nodes = [" ".join(name.split()) for names in step for name in names.split(",")]
        return f"ALARM {named} {problem[:1]}", [*named, *nodes]
    return f"{compared[0]} ({n})", []
