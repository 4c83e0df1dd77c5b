"""KL divergence between the predictions of two models, with llama-perplexity's statistics.

The base model's file has llama-perplexity's format (perplexity.cpp:process_logits): the tokens
of all windows, and for each scored token the log probabilities in 16 bits each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from ggml_py.errors import GGMLError

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
U16 = npt.NDArray[np.uint16]

MAGIC = b"_logits_"
HEAD = len(MAGIC) + 3 * 4  # followed by n_ctx, n_vocab, n_chunk
LEAST = 100  # scored tokens; with fewer, statistics are omitted
DEEPEST = np.float32(16)  # the file stores log probabilities down to this far below the largest
PERCENTILES = (99.9, 99.0, 95.0, 90.0, 50.0, 10.0, 5.0, 1.0, 0.1)
QUARTILES = (75.0, 25.0)


def row_words(n_vocab: int) -> int:
    """Return the 16-bit words per row: float32 step and minimum, then values, padded to even."""
    return 2 * ((n_vocab + 1) // 2) + 4


def n_scored(n_ctx: int) -> int:
    """Return the number of scored tokens in a window."""
    return n_ctx - 1 - n_ctx // 2


def pack(logits: F32) -> U16:
    """Pack logits [n, n_vocab] as 16-bit log probabilities, [n, row_words].

    The 16 bits cover the range from the largest value down to 16 below, or to the smallest.
    """
    n, n_vocab = logits.shape
    high = logits.max(axis=1, keepdims=True)
    low = np.maximum(logits.min(axis=1, keepdims=True), high - DEEPEST)
    rows = np.zeros((n, row_words(n_vocab)), np.uint16)
    scale = (high - low) / np.float32(65535)
    rows[:, :4] = np.concatenate([scale, low - high - _log_sum(logits, high)], 1).view(np.uint16)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.rint((np.float32(1) / scale) * (logits - low))
    rows[:, 4 : 4 + n_vocab] = np.where((logits > low) & (scale > 0), steps, 0)
    return rows


def unpack(rows: U16, n_vocab: int) -> F32:
    """Unpack rows into log probabilities, [n, n_vocab]."""
    head = np.ascontiguousarray(rows[:, :4]).view(np.float32)
    found: F32 = head[:, :1] * rows[:, 4 : 4 + n_vocab].astype(np.float32) + head[:, 1:]
    return found


def _log_sum(logits: F32, high: F32) -> F32:
    """Return the log of the sum of exponentials, [n, 1]."""
    total = np.exp(logits - high).sum(axis=1, dtype=np.float64, keepdims=True)
    found: F32 = np.log(total).astype(logits.dtype)
    return found


class BaseWriter:
    """Writer of the base model's log probabilities to a file."""

    def __init__(self, file: BinaryIO, windows: I32, n_vocab: int) -> None:
        """Write the header and the tokens of all windows, [n_chunk, n_ctx]."""
        self._file = file
        n_chunk, n_ctx = windows.shape
        self._file.write(MAGIC + np.array([n_ctx, n_vocab, n_chunk], "<i4").tobytes())
        self._file.write(windows.astype("<i4").tobytes())

    def add(self, logits: F32) -> None:
        """Append a window's log probabilities, from logits of scored tokens [n_scored, n_vocab]."""
        self._file.write(pack(logits).tobytes())


class Base:
    """Base model's predictions from a file: token windows [n_chunk, n_ctx], log probabilities.

    Raises GGMLError for a file of another format, or a truncated file.
    """

    def __init__(self, path: str) -> None:
        data = np.memmap(path, np.uint8, "r") if Path(path).stat().st_size else np.zeros(0, "u1")
        if data[: len(MAGIC)].tobytes() != MAGIC or data.size < HEAD:
            raise GGMLError(
                f"{path}: not a file of log probabilities; create one with --kl-divergence-base "
                "and without --kl-divergence"
            )
        n_ctx, self.n_vocab, n_chunk = map(int, data[len(MAGIC) : HEAD].view("<i4"))
        tokens = 4 * n_ctx * n_chunk
        words = n_chunk * n_scored(n_ctx) * row_words(self.n_vocab)
        if min(n_ctx, self.n_vocab, n_chunk) < 1 or data.size < HEAD + tokens + 2 * words:
            raise GGMLError(
                f"{path} has {data.size} bytes, but {n_chunk} windows of {n_ctx} tokens and a "
                f"vocabulary of {self.n_vocab} need {HEAD + tokens + 2 * words}; create it again"
            )
        self.windows: I32 = data[HEAD : HEAD + tokens].view("<i4").reshape(n_chunk, n_ctx)
        rows = data[HEAD + tokens :][: 2 * words].view("<u2")
        self._rows = rows.reshape(n_chunk, n_scored(n_ctx), row_words(self.n_vocab))

    def log_probs(self, window: int) -> F32:
        """Read the log probabilities of a window's scored tokens, [n_scored, n_vocab]."""
        return unpack(self._rows[window], self.n_vocab)


@dataclass(frozen=True, slots=True)
class Divergence:
    """Statistics of scored tokens; each array has one element per token.

    nll, nll_base  -log p of the next token, by this model and by the base
    kld            KL divergence of this model's prediction from the base's
    same_top       True if both models have the same most likely token
    """

    nll: F64
    nll_base: F64
    kld: F64
    same_top: npt.NDArray[np.bool_]

    @property
    def p_diff(self) -> F64:
        """Probability of the next token, minus its probability by the base."""
        return np.exp(-self.nll) - np.exp(-self.nll_base)


def divergence(logits: F32, base: F32, targets: I32) -> Divergence:
    """Compare logits [n, n_vocab] with the base's log probabilities, for the next tokens [n].

    Follows perplexity.cpp:log_softmax with base_log_prob.
    """
    high, index = logits.max(axis=1, keepdims=True), np.arange(len(targets))
    total = high + _log_sum(logits, high)
    likely = base > -DEEPEST
    with np.errstate(under="ignore"):
        terms = np.exp(base) * (base - logits + total)
    return Divergence(
        (total[:, 0] - logits[index, targets]).astype(np.float64),
        -base[index, targets].astype(np.float64),
        terms.sum(axis=1, dtype=np.float64, where=likely),
        logits.argmax(axis=1) == base.argmax(axis=1),
    )


Value = tuple[float, float]  # value and its standard error


def mean(values: F64) -> Value:
    """Return the mean and its standard error, which is 0 for ten values or fewer."""
    n, f = len(values), float(values.mean())
    df = float((values**2).mean()) - f * f
    return f, math.sqrt(df / (n - 1)) if df > 0 and n > 10 else 0.0


def covariance(a: F64, b: F64) -> float:
    """Return the covariance of two means."""
    n = len(a)
    return float((a * b).mean() - a.mean() * b.mean()) / (n - 1) if n >= 10 else 0.0


@dataclass
class Divergences:
    """Divergences of all scored tokens, accumulated over windows."""

    parts: list[Divergence] = field(default_factory=list)

    def add(self, part: Divergence) -> None:
        self.parts.append(part)

    def concatenate(self) -> Divergence:
        names = ("nll", "nll_base", "kld", "same_top")
        return Divergence(*(np.concatenate([getattr(p, n) for p in self.parts]) for n in names))

    def line(self) -> str:
        """Return the table row that is printed after each window."""
        d = self.concatenate()
        (log_ppl, error), (ratio, ratio_error) = mean(d.nll), log_ratio(d)
        ppl = math.exp(log_ppl)
        kld, rms, same = mean(d.kld), root_mean_square(d.p_diff), share(d.same_top)
        return (
            f"{len(self.parts):4d}    {ppl:9.4f} ± {ppl * error:9.4f}    {ratio:10.5f} ±"
            f" {ratio_error:10.5f}    {kld[0]:10.5f} ± {kld[1]:10.5f}    {100 * rms[0]:6.3f} ±"
            f" {100 * rms[1]:6.3f} %    {100 * same[0]:6.3f} ± {100 * same[1]:6.3f} %"
        )

    def lines(self) -> Iterator[str]:
        """Yield the statistics in llama-perplexity's format; empty for fewer than 100 tokens."""
        d = self.concatenate()
        if len(d.nll) < LEAST:
            return
        yield "====== Perplexity statistics ======"
        yield from _list_perplexities(d)
        yield from ("", "====== KL divergence statistics ======")
        yield from _list_divergences(d.kld)
        yield from ("", "====== Token probability statistics ======")
        yield from _list_tokens(d)


TITLE = (
    "chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence"
    "              Δp RMS            Same top p"
)


def log_ratio(d: Divergence) -> Value:
    """Return ln(PPL(Q) / PPL(base)) and its error."""
    (a, da), (b, db) = mean(d.nll), mean(d.nll_base)
    return a - b, math.sqrt(max(0.0, da**2 + db**2 - 2 * covariance(d.nll, d.nll_base)))


def root_mean_square(values: F64) -> Value:
    f, df = mean(values**2)
    return math.sqrt(f), 0.5 / math.sqrt(f) * df if f else 0.0


def share(values: npt.NDArray[np.bool_]) -> Value:
    f = float(values.mean())
    return f, math.sqrt(f * (1 - f) / (len(values) - 1)) if len(values) > 1 else 0.0


def percentile(ordered: F64, percent: float) -> float:
    """Interpolate a percentile; the position is computed in float32 like in llama-perplexity."""
    place = float(np.float32(percent / 100) * np.float32(len(ordered) - 1))
    i, part = int(place), place - int(place)
    return float((1 - part) * ordered[i] + part * ordered[min(i + 1, len(ordered) - 1)])


def _list_perplexities(d: Divergence) -> Iterator[str]:
    (log_ppl, error), (log_base, error_base) = mean(d.nll), mean(d.nll_base)
    ppl, base, cov = math.exp(log_ppl), math.exp(log_base), covariance(d.nll, d.nll_base)
    ratio, ratio_error = log_ratio(d)
    both = error * error_base
    var = (ppl * error) ** 2 + (base * error_base) ** 2 - 2 * ppl * base * cov
    yield f"Mean PPL(Q)                   : {_pm(ppl, ppl * error)}"
    yield f"Mean PPL(base)                : {_pm(base, base * error_base)}"
    yield f"Cor(ln(PPL(Q)), ln(PPL(base))): {100 * cov / both if both else 0.0:6.2f}%"
    yield f"Mean ln(PPL(Q)/PPL(base))     : {_pm(ratio, ratio_error)}"
    yield f"Mean PPL(Q)/PPL(base)         : {_pm(math.exp(ratio), math.exp(ratio) * ratio_error)}"
    yield f"Mean PPL(Q)-PPL(base)         : {_pm(ppl - base, math.sqrt(max(0.0, var)))}"


def _list_divergences(kld: F64) -> Iterator[str]:
    ordered = np.sort(kld)
    yield f"Mean    KLD: {_pm(*mean(kld))}"
    yield f"Maximum KLD: {ordered[-1]:10.6f}"
    for p in PERCENTILES:
        yield f"{_label(p)} KLD: {percentile(ordered, p):10.6f}"
    yield f"Minimum KLD: {ordered[0]:10.6f}"


def _list_tokens(d: Divergence) -> Iterator[str]:
    ordered, (f, df) = np.sort(d.p_diff), mean(d.p_diff)
    yield f"Mean    Δp: {100 * f:6.3f} ± {100 * df:5.3f} %"
    yield f"Maximum Δp: {100 * ordered[-1]:6.3f}%"
    for p in sorted((*PERCENTILES, *QUARTILES), reverse=True):
        yield f"{_label(p)} Δp: {100 * percentile(ordered, p):6.3f}%"
    yield f"Minimum Δp: {100 * ordered[0]:6.3f}%"
    (rms, rms_error), (same, same_error) = root_mean_square(d.p_diff), share(d.same_top)
    yield f"RMS Δp    : {100 * rms:6.3f} ± {100 * rms_error:5.3f} %"
    yield f"Same top p: {100 * same:6.3f} ± {100 * same_error:5.3f} %"


def _label(percent: float) -> str:
    return "Median " if percent == 50 else f"{percent:4.1f}%  "


def _pm(value: float, error: float) -> str:
    return f"{value:10.6f} ± {error:10.6f}"


def compare_logits(logits: F32, expected: F32, targets: Sequence[int]) -> Divergence:
    """Compare two models' logits [n, n_vocab] of the same tokens in float64, without a file."""
    ours, theirs = (x.astype(np.float64) for x in (logits, expected))
    high = theirs.max(axis=1, keepdims=True)
    base = theirs - high - _log_sum(theirs, high)  # type: ignore[arg-type]
    return divergence(ours, base, np.asarray(targets, np.int32))  # type: ignore[arg-type]
