"""The sampler's settings: a field is a setting with its command-line flags, help and interval."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from ggml_py.errors import ModelError

RANDOM_SEED = -1


class Interval(NamedTuple):
    """The finite numbers from `low` to `high`; `above`: greater than `low`."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False

    def holds(self, value: float) -> bool:
        enough = value > self.low if self.above else value >= self.low
        return enough and value <= self.high and math.isfinite(value)

    def __str__(self) -> str:
        left = "(" if self.above or self.low == -math.inf else "["
        right = ")" if self.high == math.inf else "]"
        return f"{left}{self.low}, {self.high}{right}"


_ANY, _UNIT = Interval(), Interval(0, 1)
_MAX_I32, _MAX_U32 = 2**31 - 1, 2**32 - 1


def _setting(default: Any, flags: str, help: str, interval: Interval = _ANY) -> Any:
    metadata = {"flags": tuple(flags.split()), "help": help, "interval": interval}
    return field(default=default, metadata=metadata)


def parse_logit_bias(text: str) -> tuple[int, float]:
    """`15043+1` or `15043-1.5` (or `-inf`): the token id, and what is added to its logit."""
    match = re.fullmatch(r"(\d+)([+-].+)", text)
    try:
        if match:
            return int(match[1]), float(match[2])
    except ValueError:
        pass
    raise ModelError(f"logit bias must look like 15043+1 or 15043-1 (id, bias), it is {text!r}")


@dataclass(frozen=True)
class SamplingParams:
    """llama.cpp's names and defaults (common.h:common_params_sampling).

    Each field's metadata has its `flags`, `help` and `interval`. Raises ModelError for a value
    outside the interval.
    """

    seed: int = _setting(
        RANDOM_SEED, "-s --seed", "random seed (-1: a new one each time)", Interval(-1, _MAX_U32)
    )
    temp: float = _setting(0.8, "--temp --temperature", "temperature (0: always the most likely)")
    top_k: int = _setting(40, "--top-k", "keep the k most likely tokens (0: all)")
    top_p: float = _setting(
        0.95, "--top-p", "keep the most likely of total probability p (1: all)", _UNIT
    )
    min_p: float = _setting(
        0.05, "--min-p", "drop tokens less likely than p times the most likely (0: none)", _UNIT
    )
    typical_p: float = _setting(
        1.0, "--typical --typical-p", "locally typical sampling, total probability (1: off)", _UNIT
    )
    top_n_sigma: float = _setting(
        -1.0,
        "--top-nsigma --top-n-sigma",
        "drop logits more than n standard deviations below the largest (-1: none)",
    )
    xtc_probability: float = _setting(
        0.0, "--xtc-probability", "chance to leave out the top choices (0: off)", _UNIT
    )
    xtc_threshold: float = _setting(
        0.1, "--xtc-threshold", "probability that makes a top choice (above 0.5: off)", _UNIT
    )
    repeat_last_n: int = _setting(
        64, "--repeat-last-n", "how many last tokens are penalized (0: none)", Interval(0, _MAX_I32)
    )
    repeat_penalty: float = _setting(
        1.0, "--repeat-penalty", "factor on repeated tokens (1: off)", Interval(0, above=True)
    )
    presence_penalty: float = _setting(
        0.0, "--presence-penalty", "subtracted once from repeated tokens (0: off)"
    )
    frequency_penalty: float = _setting(
        0.0, "--frequency-penalty", "subtracted from repeated tokens once per repetition (0: off)"
    )
    logit_bias: Mapping[int, float] = field(
        default_factory=dict,
        metadata={
            "flags": ("-l", "--logit-bias"),
            "help": "added to a token's logit, as 15043+1 or 15043-1",
            "parse": parse_logit_bias,
        },
    )

    def __post_init__(self) -> None:
        for f in fields(self):
            if "interval" in f.metadata:
                _check(f.name, getattr(self, f.name), type(f.default), f.metadata["interval"])
        for id, bias in self.logit_bias.items():
            if math.isnan(bias) or bias == math.inf:
                raise ModelError(f"logit_bias of token {id} must be in [-inf, inf), it is {bias}")


def _check(name: str, value: Any, kind: type, interval: Interval) -> None:
    kinds = (int,) if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not interval.holds(value):
        noun = "an integer" if kind is int else "a number"
        raise ModelError(f"{name} must be {noun} in {interval}, it is {value!r}")
