"""Test cases of samplers, with llama.cpp's recorded results (tests/data/samplers.json.xz).

The recorder (dev/record/record_samplers.py) and the tests use the same cases.
"""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dev.record.golden.demo import DEMO as VOCABULARY  # 2048 tokens; the last token ends a text
from dev.record.golden.store import DATA
from llama_py.params import SamplingParams

FILE = DATA.parent / "samplers.json.xz"
__all__ = ["CASES", "TEXT", "VOCABULARY", "Seen", "draws", "inputs", "load", "params", "save"]

N_DRAWS = 12
N_SHOWN = 100  # most likely candidates, stored with their probabilities
TIED = ("ties", "impossible", "one", "two", "equal")
SEED = 42
# Previous text: "ROMEO:\nI will not, I will not" is repeated, with names in between.
TEXT = (5, 9, 2, 7, 5, 9, 2, 3, 11, 5, 9, 2, 7, 5, 9, 4, 5, 9)

_OFF: dict[str, Any] = {"samplers": ()}
_LONG = {"dry_multiplier": 0.8, "dry_sequence_breakers": ()}
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no samplers": _OFF,
    "top_k 5": {"samplers": ("top_k",), "top_k": 5},
    "top_k 300": {"samplers": ("top_k",), "top_k": 300},
    "top_p 0.5": {"samplers": ("top_p",), "top_p": 0.5},
    "top_p 0.95": {"samplers": ("top_p",)},
    "top_p 0": {"samplers": ("top_p",), "top_p": 0.0},
    "top_p, at least 7": {"samplers": ("top_p",), "top_p": 0.1, "min_keep": 7},
    "min_p 0.05": {"samplers": ("min_p",)},
    "min_p 1": {"samplers": ("min_p",), "min_p": 1.0},
    "min_p, at least 7": {"samplers": ("min_p",), "min_p": 0.9, "min_keep": 7},
    "min_p, sorted": {"samplers": ("top_k", "min_p"), "min_keep": 3, "min_p": 0.4},
    "typical 0.5": {"samplers": ("typ_p",), "typical_p": 0.5},
    "typical 0.95": {"samplers": ("typ_p",), "typical_p": 0.95},
    "typical, at least 7": {"samplers": ("typ_p",), "typical_p": 0.1, "min_keep": 7},
    "top_n_sigma 1": {"samplers": ("top_n_sigma",), "top_n_sigma": 1.0},
    "top_n_sigma 2.5": {"samplers": ("top_n_sigma",), "top_n_sigma": 2.5},
    "xtc": {"samplers": ("xtc",), "xtc_probability": 0.5, "xtc_threshold": 0.05},
    "xtc always": {"samplers": ("xtc",), "xtc_probability": 1.0, "xtc_threshold": 0.1},
    "xtc, at least 7": {
        "samplers": ("xtc",), "xtc_probability": 1.0, "xtc_threshold": 0.01, "min_keep": 7,
    },
    "temperature 0.3": {"samplers": ("temperature",), "temp": 0.3},
    "temperature 0": {"samplers": ("temperature",), "temp": 0.0},
    "temperature first": {"sampler_seq": "tkpm", "temp": 2.5},
    "dynamic temperature": {"samplers": ("temperature",), "dynatemp_range": 0.5},
    "dynamic temperature, cubed": {
        "samplers": ("top_k", "temperature"), "dynatemp_range": 2.0, "dynatemp_exp": 3.0,
    },
    "dynamic temperature behind sigma": {
        "samplers": ("top_n_sigma", "temperature"), "top_n_sigma": 1.0, "dynatemp_range": 0.7,
    },
    "penalties": {
        "samplers": ("penalties",), "repeat_penalty": 1.3, "frequency_penalty": 0.2,
        "presence_penalty": 0.4,
    },
    "penalties of few": {"samplers": ("penalties",), "repeat_last_n": 3, "repeat_penalty": 5.0},
    "penalties behind top_k": {"sampler_seq": "kept", "repeat_penalty": 1.5, "top_k": 20},
    "dry": {"samplers": ("dry",), **_LONG},
    "dry, long": {"samplers": ("dry",), **_LONG, "dry_allowed_length": 1, "dry_base": 1.1},
    "dry of few": {"samplers": ("dry",), **_LONG, "dry_penalty_last_n": 8},
    "dry behind top_k": {"samplers": ("top_k", "dry"), **_LONG, "dry_multiplier": 3.0},
    "bias": {**_OFF, "logit_bias": {0: -np.inf, 1: 1.5}},
    "mirostat": {"mirostat": 1},
    "mirostat, eager": {"mirostat": 1, "mirostat_ent": 2.0, "mirostat_lr": 0.5, "temp": 1.2},
    "mirostat of many": {"mirostat": 1, "mirostat_ent": 6.0, "temp": 0.5},
    "mirostat 2": {"mirostat": 2},
    "mirostat 2, eager": {"mirostat": 2, "mirostat_ent": 2.0, "mirostat_lr": 0.5, "temp": 1.2},
    "adaptive_p": {"sampler_seq": "a", "adaptive_target": 0.3},
    "adaptive_p behind min_p": {
        "samplers": ("min_p", "adaptive_p", "temperature"), "adaptive_target": 0.55,
        "adaptive_decay": 0.5,
    },
    "adaptive_p off": {"sampler_seq": "ma"},
    "everything": {
        "sampler_seq": "edkypsmxt", "repeat_penalty": 1.1, "dry_multiplier": 0.5,
        "top_n_sigma": 2.0, "top_k": 200, "typical_p": 0.97, "top_p": 0.98, "min_p": 0.01,
        "xtc_probability": 0.3, "xtc_threshold": 0.08, "dynatemp_range": 0.3,
        "dry_sequence_breakers": (),
    },
    "the other way round": {
        "sampler_seq": "txmpyksde", "repeat_penalty": 1.1, "top_n_sigma": 2.0, "top_k": 200,
        "typical_p": 0.97, "top_p": 0.98, "min_p": 0.01, "xtc_probability": 0.3,
        "xtc_threshold": 0.08, **_LONG,
    },
}  # fmt: skip
# Settings that need a vocabulary, for the input "vocabulary" only.
OF_A_VOCABULARY: dict[str, dict[str, Any]] = {
    "dry with breakers": {"samplers": ("dry",), "dry_multiplier": 0.8},
    "dry with long breakers": {
        "samplers": ("dry",), "dry_multiplier": 0.8, "dry_sequence_breakers": ("the old", "."),
    },
    "infill": {"samplers": ("infill",)},
    "infill behind top_k": {"samplers": ("top_k", "top_p", "infill"), "top_k": 12, "top_p": 0.9},
    "infill, hot": {"samplers": ("top_k", "temperature", "infill"), "top_k": 6, "temp": 0.2},
    "infill of two": {"samplers": ("top_k", "infill"), "top_k": 2},
    "ignore_eos": {**_OFF, "ignore_eos": True},
}  # fmt: skip

_UNDEFINED = [
    ("bias", "one"),  # the second token does not exist
    ("mirostat", "equal"),
    ("mirostat of many", "equal"),  # the effect of an infinite k
    *((case, "impossible") for case in CASES if CASES[case].get("typical_p", 1) < 1),  # NaN
]


@dataclass(frozen=True)
class Seen:
    """Candidates after sampling: number of tokens, sum of ids, and the most likely tokens."""

    n: int
    sum: int
    ids: list[int]
    p: list[float]

    @classmethod
    def of(cls, ids: NDArray[Any], p: NDArray[Any]) -> Seen:
        possible = p.astype(np.float32) > 0
        ids, p = ids[possible], p[possible]
        best = np.argsort(-p, kind="stable")[:N_SHOWN]
        likeliest = [float(f"{x:.8g}") for x in p[best]]
        return cls(int(ids.size), int(ids.sum()), ids[best].tolist(), likeliest)


def params(case: str) -> SamplingParams:
    return SamplingParams(**{**CASES, **OF_A_VOCABULARY}[case], seed=SEED)


def draws(name: str) -> int:
    """Return the number of draws: one for ties, because llama.cpp orders them arbitrarily."""
    return 1 if name in TIED else N_DRAWS


def inputs() -> dict[str, NDArray[np.float32]]:
    """Generate the logits of each input, for the recorder."""
    rng = np.random.default_rng(1)
    nothing = -np.inf
    made = {
        "ties": [2, 1, 2, 0.5, 1, 1, -1, 2, 0, 0.5, -1, 3, 2, 1],
        "impossible": [nothing, 1, nothing, 2.5, 0.5, nothing, -3, nothing, 0, 1.5, nothing, 2],
        "one": [1.5],
        "two": [-0.5, 0.25],
        "equal": [0.75] * 100,
        "peaked": [*rng.normal(0, 1, 20), 9, *rng.normal(0, 1, 29)],
        "thousand": rng.normal(-2, 3, 1000),
        "flat": rng.normal(1, 0.3, 1000),
        "vocabulary": rng.normal(0, 2.5, 2048),
    }
    rounded = {name: np.array(x).round(7).astype(np.float32) for name, x in made.items()}
    for name, x in rounded.items():
        assert name in TIED or np.unique(x).size == x.size, name
    return rounded


def pairs() -> list[tuple[str, str]]:
    """Return all defined (case, input) pairs."""
    plain = [(case, name) for name in inputs() for case in CASES]
    plain = [pair for pair in plain if pair not in _UNDEFINED]
    return plain + [(case, "vocabulary") for case in OF_A_VOCABULARY]


def save(logits: dict[str, NDArray[np.float32]], results: dict[str, Any]) -> int:
    """Write the recording and return its size in bytes."""
    shown = {name: [float(f"{x:.8g}") for x in row] for name, row in logits.items()}
    text = json.dumps({"inputs": shown, "results": results}, separators=(",", ":"))
    FILE.write_bytes(lzma.compress(text.encode(), preset=9))
    return FILE.stat().st_size


@cache
def load() -> dict[str, Any]:
    """Return `inputs` by name, and `results` by "case/input": `drawn`, `first`, `last`."""
    data: dict[str, Any] = json.loads(lzma.decompress(FILE.read_bytes()))
    return data
