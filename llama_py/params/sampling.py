"""How the next token is chosen (common.h:common_params_sampling)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llama_py.params import texts
from llama_py.params.option import Params, option
from llama_py.params.rules import Biases, Integers, Numbers

RANDOM_SEED = -1
_UNIT = Numbers(0, 1)


@dataclass(frozen=True, kw_only=True)
class SamplingParams(Params):
    """How the next token is chosen: the settings of `Sampler`; llama.cpp's names and defaults."""

    seed: int = option(
        RANDOM_SEED, "-s", "--seed", env="LLAMA_ARG_SEED", check=Integers(-1, 2**32 - 1),
        help="random seed (-1: a new one each time)",
    )  # fmt: skip
    temp: float = option(
        0.8, "--temp", "--temperature", env="LLAMA_ARG_TEMPERATURE",
        help="temperature (0: always the most likely)",
    )  # fmt: skip
    top_k: int = option(
        40, "--top-k", env="LLAMA_ARG_TOP_K", help="keep the k most likely tokens (0: all)"
    )
    top_p: float = option(
        0.95, "--top-p", env="LLAMA_ARG_TOP_P", check=_UNIT,
        help="keep the most likely of total probability p (1: all)",
    )  # fmt: skip
    min_p: float = option(
        0.05, "--min-p", env="LLAMA_ARG_MIN_P", check=_UNIT,
        help="drop tokens less likely than p times the most likely (0: none)",
    )  # fmt: skip
    typical_p: float = option(
        1.0, "--typical", "--typical-p", env="LLAMA_ARG_TYPICAL_P", check=_UNIT,
        help="locally typical sampling, total probability (1: off)",
    )  # fmt: skip
    top_n_sigma: float = option(
        -1.0, "--top-nsigma", "--top-n-sigma", env="LLAMA_ARG_TOP_N_SIGMA",
        help="drop logits more than n standard deviations below the largest (-1: none)",
    )  # fmt: skip
    xtc_probability: float = option(
        0.0, "--xtc-probability", env="LLAMA_ARG_XTC_PROBABILITY", check=_UNIT,
        help="chance to leave out the top choices (0: off)",
    )  # fmt: skip
    xtc_threshold: float = option(
        0.1, "--xtc-threshold", env="LLAMA_ARG_XTC_THRESHOLD", check=_UNIT,
        help="probability that makes a top choice (above 0.5: off)",
    )  # fmt: skip
    repeat_last_n: int = option(
        64, "--repeat-last-n", env="LLAMA_ARG_REPEAT_LAST_N", check=Integers(0, 2**31 - 1),
        help="how many last tokens are penalized (0: none)",
    )  # fmt: skip
    repeat_penalty: float = option(
        1.0, "--repeat-penalty", env="LLAMA_ARG_REPEAT_PENALTY", check=Numbers(0, above=True),
        help="factor on repeated tokens (1: off)",
    )  # fmt: skip
    presence_penalty: float = option(
        0.0, "--presence-penalty", env="LLAMA_ARG_PRESENCE_PENALTY",
        help="subtracted once from repeated tokens (0: off)",
    )  # fmt: skip
    frequency_penalty: float = option(
        0.0, "--frequency-penalty", env="LLAMA_ARG_FREQUENCY_PENALTY",
        help="subtracted from repeated tokens once per repetition (0: off)",
    )  # fmt: skip
    logit_bias: Mapping[int, float] = option(
        dict, "-l", "--logit-bias", env="LLAMA_ARG_LOGIT_BIAS", parse=texts.logit_bias, many=True,
        check=Biases(), help="added to a token's logit, as 15043+1 or 15043-1",
    )  # fmt: skip
