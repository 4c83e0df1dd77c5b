"""llama-py-perplexity: how well a model predicts a text, scored as llama-perplexity does.

The text is cut into windows of -c tokens, each run from an empty memory; tokens of the second half
are scored, which have at least half a window before them. As many windows as -b holds are run at
once. The estimate after each window goes to stdout, then the final one.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llama_py.params import ContextParams, ModelParams
from llama_py.params.option import Params, option
from llama_py.params.rules import integers
from llama_py_tools import session
from llama_py_tools.cpus import CpuParams
from llama_py_tools.escapes import ENCODING
from llama_py_tools.options import Parser, read
from llama_py_tools.params import CommonParams, FileParams, FormParams, SteeringParams

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from llama_py import Context, Model

SMALLEST_WINDOW = 4  # tokens; below, too few are scored for an error


@dataclass(frozen=True, kw_only=True)
class TextParams(Params):
    """What is scored."""

    file: str = option("", "-f --file", "text to score", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class WindowParams(ContextParams):
    """ContextParams, where the context is one window."""

    n_ctx: int = option(512, "-c --ctx-size", "tokens of a window", check=integers(SMALLEST_WINDOW))


def parser() -> Parser:
    usage = "%(prog)s -m FILE -f TEXT [options]"
    p = Parser("llama-py-perplexity", usage=usage, description=__doc__)
    p.add(CommonParams, FileParams, TextParams)
    p.add(WindowParams, CpuParams, FormParams, SteeringParams, ModelParams, without=("check",))
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """0 done, 1 error, 2 wrong usage, 130 interrupted."""
    p = parser()
    args = p.parse_args(argv)
    if not read(args, TextParams).file:
        p.error("give a text with -f FILE")
    return session.run(_command, args)


def _command(args: argparse.Namespace) -> None:
    session.loading()
    from llama_py.ready import make_ready

    text = Path(read(args, TextParams).file).read_bytes().decode(*ENCODING)
    model = session.open_model(args)
    ids = token_ids(model, text.removesuffix("\n"))
    o = read(args, WindowParams)
    check_length(ids, o.n_ctx)
    n_seqs = max(1, o.n_batch // o.n_ctx)
    n_batch = min(o.n_batch, n_seqs * o.n_ctx)
    ctx = session.open_context(
        args, model, n_ctx=n_seqs * o.n_ctx, n_batch=n_batch, n_seq_max=n_seqs
    )
    make_ready(ctx, n_batch)
    bos = model.tokenizer.bos if model.tokenizer.add_bos else None
    estimate = Estimate()
    for i, losses in enumerate(score(ctx, ids, o.n_ctx, n_batch, bos), 1):
        estimate.add(losses)
        session.write(f"[{i}]{estimate.perplexity:.4f},")
    session.write(f"\nFinal estimate: {estimate}\n")


def token_ids(model: Model, text: str) -> list[int]:
    """The text's tokens. ContextError if the model wants an end-of-text after each text."""
    from ggml_py.errors import ContextError

    if model.tokenizer.add_eos:
        raise ContextError(f"{model.arch} adds EOS to every text; its windows cannot be scored")
    return model.tokenizer.tokenize(text, parse_special=False)


def check_length(ids: Sequence[int], n_ctx: int) -> None:
    """ContextError unless there are two windows."""
    from ggml_py.errors import ContextError

    if len(ids) < 2 * n_ctx:
        raise ContextError(
            f"the text has {len(ids)} tokens; windows of {n_ctx} need at least {2 * n_ctx}."
            " Give a longer text or a smaller -c"
        )


def score(
    ctx: Context, ids: Sequence[int], n_ctx: int, n_batch: int, bos: int | None = None
) -> Iterator[npt.NDArray[np.float64]]:
    """-log p of the scored tokens of each whole window (perplexity.cpp:perplexity).

    Of a window, tokens n_ctx / 2 + 1 to n_ctx - 1 are scored. `bos` stands in place of its first.
    The context must have n_batch // n_ctx sequences, or one if that is 0.
    """
    import numpy as np

    windows = np.array(ids[: len(ids) // n_ctx * n_ctx], np.int32).reshape(-1, n_ctx)
    n_seqs = max(1, n_batch // n_ctx)
    for start in range(0, len(windows), n_seqs):
        group = windows[start : start + n_seqs]
        fed = group.copy()
        if bos is not None:
            fed[:, 0] = bos
        rows = _logits(ctx, fed, min(n_batch, n_ctx))
        for logits, targets in zip(rows, group[:, n_ctx // 2 + 1 :], strict=True):
            yield -log_softmax(logits, targets)


def _logits(ctx: Context, windows: npt.NDArray[np.int32], n_batch: int) -> npt.NDArray[np.float32]:
    """Of windows run side by side, from token n_ctx / 2 to the last but one
    -> [n_windows, n_scored, n_vocab]"""
    import numpy as np

    from llama_py import Batch

    n_windows, n_ctx = windows.shape
    wanted = np.arange(n_ctx) >= n_ctx // 2
    wanted[-1] = False  # nothing follows it
    ctx.clear()
    parts = []
    for start in range(0, n_ctx, n_batch):
        now = slice(start, start + n_batch)
        tokens, outputs = windows[:, now], np.tile(wanted[now], n_windows)
        seq_ids = [(s,) for s in range(n_windows) for _ in range(tokens.shape[1])]
        found = ctx.decode(Batch(tokens.ravel(), seq_ids=seq_ids, outputs=outputs))
        parts.append(found.reshape(n_windows, -1, ctx.n_vocab))
    return np.concatenate(parts, axis=1)


def log_softmax(
    logits: npt.NDArray[np.float32], targets: npt.NDArray[np.int32]
) -> npt.NDArray[np.float64]:
    """log p of a target in each row [n, n_vocab]; float32 terms, a float64 sum."""
    import numpy as np

    logits = logits - logits.max(axis=1, keepdims=True)
    total = np.exp(logits).sum(axis=1, dtype=np.float64)
    found: npt.NDArray[np.float64] = logits[np.arange(len(targets)), targets] - np.log(total)
    return found


@dataclass
class Estimate:
    """The mean of -log p so far."""

    count: int = 0
    total: float = 0.0
    total_squares: float = 0.0

    def add(self, losses: npt.NDArray[np.float64]) -> None:
        self.count += len(losses)
        self.total += float(losses.sum())
        self.total_squares += float((losses**2).sum())

    @property
    def perplexity(self) -> float:
        return math.exp(self.total / self.count)

    @property
    def error(self) -> float:
        """Standard error of the perplexity, from that of the mean."""
        mean = self.total / self.count
        variance = max(0.0, self.total_squares / self.count - mean**2)
        return math.sqrt(variance / (self.count - 1)) * self.perplexity

    def __str__(self) -> str:
        return f"PPL = {self.perplexity:.4f} +/- {self.error:.5f}"
