"""Verdict on a case: it must run, or be refused by an error of the project."""

from __future__ import annotations

import logging
import traceback
import unicodedata
import warnings
from dataclasses import dataclass
from pathlib import Path

from dev.torture.fuzz.kind import Case
from ggml_py.errors import GGMLError

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Verdict:
    """kind: ran, refused or found; text: result or message; where: location in the source."""

    kind: str
    text: str
    where: str = ""


class _Listener(logging.Handler):
    """Messages that would harm a terminal."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.bad: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if harmful(text):
            self.bad.append(text)


def harmful(text: str) -> bool:
    """Return True for text with control characters, which could affect a terminal. Lone surrogates
    are bytes that are not UTF-8, which stderr escapes."""
    return not text.isprintable() and any(
        unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") for c in text
    )


def judge(case: Case) -> Verdict:
    """Run a case. Warnings (for example NumPy's) are findings."""
    listener, log = _Listener(), logging.getLogger("llama_py")
    log.addHandler(listener)
    log.propagate = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            verdict = _run(case)
    finally:
        log.removeHandler(listener)
    if listener.bad and verdict.kind != "found":
        return Verdict("found", f"logged raw: {listener.bad[0]!a}", "log")
    return verdict


def _run(case: Case) -> Verdict:
    try:
        return Verdict("ran", case.run())
    except GGMLError as error:
        text = str(error)
        if harmful(text):
            return Verdict("found", f"raw in a message: {text[:300]!a}", _where(error))
        return Verdict("refused", f"{type(error).__name__}: {text[:300]}")
    except Exception as error:
        shown = "".join(traceback.format_exception(error)[-6:])
        text = f"{type(error).__name__}: {str(error)[:300]}"
        return Verdict("found", f"{text}\n{shown}", f"{_where(error)} {type(error).__name__}")


def _where(error: BaseException) -> str:
    """Return the innermost frame in the project."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(str(ROOT))
    ]
    inner = [f for f in frames if "/dev/torture/fuzz/" not in f.filename] or frames
    last = inner[-1] if inner else None
    return f"{Path(last.filename).relative_to(ROOT)}:{last.lineno}" if last else "?"
