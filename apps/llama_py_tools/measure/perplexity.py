"""llama-py-perplexity: measure how well a model predicts a text, like llama-perplexity.

The text is split into windows of -c tokens, each with an empty context. The second half of each
window is scored. Windows run in parallel up to -b tokens. The command prints the estimate after
each window, then the final estimate.

--kl-divergence-base FILE stores the model's predictions. --kl-divergence then compares another
model's predictions for the same tokens. The file has llama-perplexity's format.

--hellaswag, --winogrande and --multiple-choice score tasks in llama-perplexity's formats. Tasks
whose contexts have up to -b tokens in total are computed together.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llama_py.params import ContextParams, ModelParams
from llama_py.params.option import Params, option
from llama_py.params.rules import integers
from llama_py_tools.command.cpus import CpuParams
from llama_py_tools.command.escapes import ENCODING
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.params import RUN, CommonParams, FileParams, FormParams, SteeringParams
from llama_py_tools.command.ranks import HostsParams
from llama_py_tools.measure.choices import (
    ChoiceParams,
    count_sequences,
    log_softmax,
    score_lines,
    select_tasks,
)
from llama_py_tools.models import session

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from llama_py import Context, Model

    F32 = npt.NDArray[np.float32]
    I32 = npt.NDArray[np.int32]

SMALLEST_WINDOW = 4  # tokens; smaller windows score too few tokens for an error
N_PARALLEL = 4  # contexts of tasks have this many times -c tokens
PAGE = 256  # tokens; llama.cpp rounds contexts up to a multiple


class TextParams(Params):
    """Options of the scored text."""

    file: str = option("", "-f --file", "text file to score", metavar="FILE")
    binary_file: str = option(
        "",
        "-bf --binary-file",
        "file to score, including a final newline, for tasks",
        metavar="FILE",
    )
    ppl_stride: int = option(
        0,
        "--ppl-stride",
        "tokens between the starts of windows (0: windows without overlap); only the last N"
        " tokens of a window are scored",
        check=integers(0),
    )
    chunks: int = option(-1, "--chunks", "maximum number of windows (-1: all)", check=integers(-1))
    kl_divergence: bool = option(
        False,
        "--kl-divergence",
        "compare with the predictions in --kl-divergence-base; -f and -c are not needed",
    )
    logits_file: str = option(
        "",
        "--kl-divergence-base --save-all-logits",
        "file for the predictions; --kl-divergence reads this file",
        metavar="FILE",
    )
    ppl_output_type: int = option(
        0,
        "--ppl-output-type",
        "output: the estimate after each window (0), or a line with the window's first token (1)",
        check=integers(0, 1),
        metavar="0|1",
    )


class WindowParams(ContextParams):
    """ContextParams of a context with one window."""

    n_ctx: int = option(512, "-c --ctx-size", "tokens per window", check=integers(SMALLEST_WINDOW))


EPILOG = """examples:
  %(prog)s -m model.gguf -f text.txt             # windows of 512 tokens
  %(prog)s -m f16.gguf -f text.txt --kl-divergence-base base.bin
  %(prog)s -m q4.gguf --kl-divergence-base base.bin --kl-divergence
"""


def parser() -> OptionParser:
    usage = "%(prog)s -m FILE -f TEXT [options]"
    common = (TextParams, ChoiceParams, RUN)
    p = OptionParser("llama-py-perplexity", common, usage=usage, description=__doc__, epilog=EPILOG)
    p.add(CommonParams, FileParams, TextParams, ChoiceParams)
    p.add(WindowParams, CpuParams, FormParams, SteeringParams, ModelParams, without=("check",))
    p.add(HostsParams)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (docs/commands.md)."""
    p = parser()
    args = p.parse_args(argv)
    o = read(args, TextParams)
    if o.kl_divergence and not o.logits_file:
        p.error(
            "--kl-divergence needs --kl-divergence-base FILE; create the file with a run without "
            "--kl-divergence"
        )
    if not (o.file or o.binary_file or o.kl_divergence):
        p.error("set a text with -f FILE")
    if read(args, ChoiceParams).has_tasks:
        return session.run(_choose, args)
    return session.run(_compare if o.kl_divergence else _command, args)


def _data(t: TextParams) -> bytes:
    """Read the file, without the last line break of a text."""
    if t.binary_file:
        return Path(t.binary_file).read_bytes()
    return Path(t.file).read_bytes().removesuffix(b"\n")


def _choose(args: argparse.Namespace) -> None:
    """Score the multiple-choice tasks of a file."""
    session.loading()
    p, o = read(args, ChoiceParams), read(args, WindowParams)
    tasks = select_tasks(p, _data(read(args, TextParams)))
    model = session.open_model(args)
    n_ctx, n_seqs = N_PARALLEL * o.n_ctx, count_sequences(model, tasks)
    how = {"n_ctx": n_ctx, "n_batch": min(o.n_batch, n_ctx), "n_seq_max": n_seqs}
    ctx = session.open_context(args, model, **how, kv_unified=True, cache_ram=0)
    for line in score_lines(ctx, p, tasks):
        session.write(line)


def _command(args: argparse.Namespace) -> None:
    session.loading()
    t, o = read(args, TextParams), read(args, WindowParams)
    text = _data(t).decode(*ENCODING)
    model = session.open_model(args)
    ids = token_ids(model, text)
    n_ctx = -(-(o.n_ctx + t.ppl_stride // 2) // PAGE) * PAGE if t.ppl_stride else o.n_ctx
    check_length(ids, n_ctx)
    windows = split_windows(ids, n_ctx, t.ppl_stride)[: t.chunks if t.chunks > 0 else None]
    estimate = Estimate()
    with ExitStack() as stack:
        keep = None
        if t.logits_file:
            from llama_py_tools.measure.kl_divergence import BaseWriter

            file = stack.enter_context(Path(t.logits_file).open("wb"))
            keep = BaseWriter(file, windows, model.hparams.n_vocab)
        for i, (logits, targets) in enumerate(_predictions(args, model, windows, t.ppl_stride), 1):
            estimate.add(-log_softmax(logits, targets))
            if keep is not None:
                keep.add(logits)
            if t.ppl_output_type:
                session.write(f"{(i - 1) * (t.ppl_stride or n_ctx):8d}  {estimate.line()}\n")
            else:
                session.write(f"[{i}]{estimate.perplexity:.4f},")
    session.write(f"\nFinal estimate: {estimate}\n")


def _compare(args: argparse.Namespace) -> None:
    """Compare the predictions with another model's predictions."""
    session.loading()
    from ggml_py.errors import ContextError
    from llama_py_tools.measure import kl_divergence as kl

    t = read(args, TextParams)
    base = kl.Base(t.logits_file)
    model = session.open_model(args)
    if base.n_vocab != model.hparams.n_vocab:
        raise ContextError(
            f"{t.logits_file} has a vocabulary of {base.n_vocab} tokens, but the model has "
            f"{model.hparams.n_vocab}; compare models with the same tokens"
        )
    token_ids(model, "")
    windows = base.windows[: t.chunks if t.chunks > 0 else None]
    found = kl.Divergences()
    for i, (logits, targets) in enumerate(_predictions(args, model, windows)):
        session.write("" if i else f"{kl.TITLE}\n")
        found.add(kl.divergence(logits, base.log_probs(i), targets))
        session.write(f"{found.line()}\n")
    session.write("\n" + "".join(f"{line}\n" for line in found.lines()))


def _predictions(
    args: argparse.Namespace, model: Model, windows: I32, stride: int = 0
) -> Iterator[tuple[F32, I32]]:
    """Yield `predictions` from a context with `-b` tokens of parallel windows."""
    from llama_py.context.warmup import compile_kernels

    n_ctx, most = windows.shape[1], read(args, WindowParams).n_batch
    n_seqs = max(1, most // n_ctx)
    n_batch = min(most, n_seqs * n_ctx)
    ctx = session.open_context(args, model, n_ctx=n_seqs * n_ctx, n_batch=n_batch, n_seq_max=n_seqs)
    compile_kernels(ctx, n_batch)
    # llama-perplexity writes BOS into overlapping windows after it has computed them
    bos = model.tokenizer.bos if model.tokenizer.add_bos and not stride else None
    yield from predictions(ctx, windows, n_batch, bos, stride)


def token_ids(model: Model, text: str) -> list[int]:
    """Return the text's tokens; ContextError if the model needs an end token after each text."""
    from ggml_py.errors import ContextError

    if model.tokenizer.add_eos:
        raise ContextError(
            f"{model.arch} adds EOS to every text, so windows of a text cannot be scored; use "
            "another model"
        )
    return model.tokenizer.tokenize(text, parse_special=False)


def check_length(ids: Sequence[int], n_ctx: int) -> None:
    """Raise ContextError unless there are two windows."""
    from ggml_py.errors import ContextError

    if len(ids) < 2 * n_ctx:
        raise ContextError(
            f"the text must have at least {2 * n_ctx} tokens for windows of {n_ctx}, got "
            f"{len(ids)}; use a longer text or a smaller -c"
        )


def split_windows(ids: Sequence[int], n_ctx: int, stride: int = 0) -> I32:
    """Return complete windows that begin every `stride` tokens; 0: without overlap. -> [n,
    n_ctx]"""
    import numpy as np

    if stride:
        views = np.lib.stride_tricks.sliding_window_view(np.array(ids, np.int32), n_ctx)
        return views[: len(ids) - n_ctx : stride]
    return np.array(ids[: len(ids) // n_ctx * n_ctx], np.int32).reshape(-1, n_ctx)


def score(
    ctx: Context, ids: Sequence[int], n_ctx: int, n_batch: int, bos: int | None = None
) -> Iterator[npt.NDArray[np.float64]]:
    """Yield -log p of the scored tokens of each complete window (perplexity.cpp:perplexity)."""
    for logits, targets in predictions(ctx, split_windows(ids, n_ctx), n_batch, bos):
        yield -log_softmax(logits, targets)


def predictions(
    ctx: Context, windows: I32, n_batch: int, bos: int | None = None, stride: int = 0
) -> Iterator[tuple[F32, I32]]:
    """Yield for each window [n_ctx] logits [n_scored, n_vocab] and the next tokens.

    It scores tokens n_ctx / 2 + 1 to n_ctx - 1, or the last `stride`. `bos` replaces
    the first token. The context must have max(1, n_batch // n_ctx) sequences.
    """
    n_ctx = windows.shape[1]
    n_seqs = max(1, n_batch // n_ctx)
    for start in range(0, len(windows), n_seqs):
        group = windows[start : start + n_seqs]
        fed = group.copy()
        if bos is not None:
            fed[:, 0] = bos
        first = max(n_ctx - stride - 1, 0) if stride else n_ctx // 2
        rows = _logits(ctx, fed, min(n_batch, n_ctx), first)
        yield from zip(rows, group[:, first + 1 :], strict=True)


def _logits(ctx: Context, windows: I32, n_batch: int, first: int) -> F32:
    """Compute logits of windows side by side, from token `first` to the last but one
    -> [n_windows, n_scored, n_vocab]"""
    import numpy as np

    from llama_py import Batch

    n_windows, n_ctx = windows.shape
    wanted = np.arange(n_ctx) >= first
    wanted[-1] = False  # the last token has no next token
    ctx.clear()
    parts = []
    for start in range(0, n_ctx, n_batch):
        now = slice(start, start + n_batch)
        tokens, outputs = windows[:, now], np.tile(wanted[now], n_windows)
        seq_ids = [(s,) for s in range(n_windows) for _ in range(tokens.shape[1])]
        found = ctx.decode(Batch(tokens.ravel(), seq_ids=seq_ids, outputs=outputs))
        parts.append(found.reshape(n_windows, -1, ctx.n_vocab))
    return np.concatenate(parts, axis=1)


@dataclass
class Estimate:
    """The mean of -log p of all scored tokens."""

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
        """Standard error of the perplexity, from the standard error of the mean."""
        mean = self.total / self.count
        variance = max(0.0, self.total_squares / self.count - mean**2)
        return math.sqrt(variance / (self.count - 1)) * self.perplexity

    def line(self) -> str:
        """Return the perplexity, the mean and its error."""
        error = self.error / self.perplexity
        return f"{self.perplexity:.4f}  {self.total / self.count:4f}  {error:4f}"

    def __str__(self) -> str:
        return f"PPL = {self.perplexity:.4f} +/- {self.error:.5f}"
