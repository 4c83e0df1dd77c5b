"""Options of sampling: samplers, their names and settings."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from llama_py.params import texts
from llama_py.params.option import Params, option
from llama_py.params.rules import BIASES, ValueRule, integers, numbers

log = logging.getLogger("llama_py")

# The character of each sampler in --sampler-seq, in the order of the default chain; then others.
_DEFAULT = {
    "penalties": "e",
    "dry": "d",
    "top_n_sigma": "s",
    "top_k": "k",
    "typ_p": "y",
    "top_p": "p",
    "min_p": "m",
    "xtc": "x",
    "temperature": "t",
}
SAMPLERS = {**_DEFAULT, "infill": "i", "adaptive_p": "a"}
_ALIASES = {
    **{name.replace("_", between): name for name in SAMPLERS for between in ("_", "-", "")},
    "nucleus": "top_p",
    "temp": "temperature",
    "typ": "typ_p",
}
_NAMES = {character: name for name, character in SAMPLERS.items()}

CONSTRAINTS = ("grammar", "grammar_file", "json_schema", "json_schema_file", "regex", "lark")
_RANDOM_SEEDS = (-1, 2**32 - 1)  # LLAMA_DEFAULT_SEED, with and without its sign
_UNIT = numbers(0, 1)


def _words(value: str | Sequence[str]) -> list[str]:
    given = value.split(";") if isinstance(value, str) else value
    return [word.lower() for word in given if word]


def known_samplers(given: str | Sequence[str]) -> str | tuple[str, ...]:
    """Return the known characters of a string, or the known names of a sequence.

    Others are skipped with a warning (sampling.cpp:common_sampler_types_from_names).
    """
    known: str | tuple[str, ...]
    if isinstance(given, str):
        known, every = "".join(c for c in given if c in _NAMES), ", ".join(_NAMES)
    else:
        known, every = tuple(n for n in given if n.lower() in _ALIASES), ", ".join(SAMPLERS)
    if len(known) < len(given):
        log.warning("samplers %r: unknown samplers are skipped; known: %s", given, every)
    return known


def _are_samplers(value: Any) -> bool:
    if not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        return False
    return set(_words(value)) <= set(_ALIASES)


def _are_characters(value: Any) -> bool:
    return isinstance(value, str) and set(value) <= set(_NAMES)


def _are_texts(value: Any) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return all(isinstance(text, str) for text in value)


_SEQUENCE = "".join(SAMPLERS.values())
_NAMED = ValueRule(f"a list of {', '.join(SAMPLERS)}", _are_samplers, words=tuple(SAMPLERS))
_CHARACTERS = ValueRule(f"a string of the characters {_SEQUENCE}", _are_characters)
_TEXTS = ValueRule("a list of strings", _are_texts)


def _breakers(text: str) -> tuple[str, ...]:
    return () if text == "none" else (text,)


class SamplingParams(Params):
    """Options for choosing the next token, with llama.cpp's names and defaults."""

    group = "sampling"

    samplers: str | Sequence[str] = option(
        ";".join(_DEFAULT),
        "--samplers",
        "samplers to apply, in this order; names may be repeated or omitted, and infill and"
        " adaptive_p may be added",
        parse=lambda text: tuple(_words(text)),
        check=_NAMED,
        metavar="NAME;...",
    )
    sampler_seq: str = option(
        "",
        "--sampler-seq --sampling-seq",
        "samplers to apply as characters, instead of --samplers; default chain:"
        f" {''.join(_DEFAULT.values())}, infill: i, adaptive_p: a",
        check=_CHARACTERS,
        metavar="SEQUENCE",
    )
    seed: int = option(
        -1, "-s --seed", "random seed (-1: a new seed for each run)", check=integers(-1, 2**32 - 1)
    )
    ignore_eos: bool = option(
        False, "--ignore-eos", "never choose an end token, so that generation continues"
    )
    min_keep: int = option(
        0, "", "minimum number of candidates after typ_p, top_p, min_p and xtc", check=integers(0)
    )
    temp: float = option(
        0.8, "--temp --temperature", "temperature (0: always the most likely token)"
    )
    dynatemp_range: float = option(
        0.0,
        "--dynatemp-range",
        "dynamic temperature: maximum distance from --temp, controlled by entropy (0: off)",
        check=numbers(0),
    )
    dynatemp_exp: float = option(
        1.0,
        "--dynatemp-exp",
        "dynamic temperature: exponent of the normalized entropy",
        check=numbers(0),
    )
    top_k: int = option(40, "--top-k", "keep the k most likely tokens (0: all)")
    top_p: float = option(
        0.95,
        "--top-p",
        "keep the most likely tokens up to total probability p (1: all)",
        check=_UNIT,
    )
    min_p: float = option(
        0.05,
        "--min-p",
        "drop tokens less likely than p times the most likely (0: off)",
        check=_UNIT,
    )
    typical_p: float = option(
        1.0,
        "--typical --typical-p",
        "locally typical sampling up to total probability p (1: off)",
        check=_UNIT,
    )
    top_n_sigma: float = option(
        -1.0,
        "--top-nsigma --top-n-sigma",
        "drop logits more than n standard deviations below the maximum (-1: off)",
    )
    xtc_probability: float = option(
        0.0,
        "--xtc-probability",
        "XTC: probability of removing the top choices (0: off)",
        check=_UNIT,
    )
    xtc_threshold: float = option(
        0.1,
        "--xtc-threshold",
        "XTC: minimum probability of a top choice (above 0.5: off)",
        check=_UNIT,
    )
    repeat_last_n: int = option(
        64,
        "--repeat-last-n",
        "number of last tokens to penalize (0: off)",
        check=integers(0, 2**31 - 1),
    )
    repeat_penalty: float = option(
        1.0, "--repeat-penalty", "penalty factor for repeated tokens (1: off)", check=numbers(1e-38)
    )
    presence_penalty: float = option(
        0.0, "--presence-penalty", "penalty subtracted once from repeated tokens (0: off)"
    )
    frequency_penalty: float = option(
        0.0,
        "--frequency-penalty",
        "penalty subtracted from repeated tokens once per repetition (0: off)",
    )
    dry_multiplier: float = option(
        0.0,
        "--dry-multiplier",
        "DRY: penalty of a token that continues a repetition of --dry-allowed-length tokens (0:"
        " off)",
    )
    dry_base: float = option(
        1.75, "--dry-base", "DRY: penalty factor per additional repeated token", check=numbers(1)
    )
    dry_allowed_length: int = option(
        2,
        "--dry-allowed-length",
        "DRY: length of repetitions without penalty",
        check=integers(0, 2**31 - 1),
    )
    dry_penalty_last_n: int = option(
        64,
        "--dry-penalty-last-n",
        "DRY: number of last tokens to search for repetitions (0: off)",
        check=integers(0, 2**31 - 1),
    )
    dry_sequence_breakers: Sequence[str] = option(
        ("\n", ":", '"', "*"),
        "--dry-sequence-breaker",
        "DRY: text that ends repetitions (none: no breakers); may be repeated, replaces the"
        " default breakers",
        parse=_breakers,
        many=True,
        check=_TEXTS,
        metavar="TEXT",
    )
    adaptive_target: float = option(
        -1.0,
        "--adaptive-target",
        "adaptive_p: target probability of chosen tokens (negative: off)",
        check=numbers(-math.inf, 1),
    )
    adaptive_decay: float = option(
        0.9,
        "--adaptive-decay",
        "adaptive_p: decay of the average of past probabilities; larger values adapt more slowly",
        check=numbers(0, 0.99),
    )
    mirostat: int = option(
        0,
        "--mirostat",
        "Mirostat version 1 or 2 (0: off); replaces all other samplers except temperature",
        check=integers(0, 2),
    )
    mirostat_lr: float = option(
        0.1, "--mirostat-lr", "Mirostat: learning rate eta", check=numbers(0, 1e6)
    )
    mirostat_ent: float = option(
        5.0, "--mirostat-ent", "Mirostat: target surprise tau, in bits", check=numbers(0, 1e6)
    )
    logit_bias: Mapping[int | str, float] = option(
        dict,
        "-l --logit-bias",
        "bias for the logit of a token (15043+1, 15043-1) or of all tokens of a text (Hello-1);"
        " may be repeated",
        metavar="TOKEN+N|TEXT+N",
        parse=texts.logit_bias,
        many=True,
        check=BIASES,
    )

    grammar: str = option(
        "",
        "--grammar",
        "grammar of the response, in llama.cpp's GBNF (or in Lark, if it starts with %llguidance)",
        metavar="GBNF",
    )
    grammar_file: str | PathLike[str] = option(
        "",
        "--grammar-file",
        "file with the grammar of the response, in GBNF (or in Lark, if the name ends with .lark)",
        metavar="FILE",
    )
    json_schema: str | bool | Mapping[str, Any] = option(
        "", "-j --json-schema", "JSON schema of the response ({}: any JSON)", metavar="SCHEMA"
    )
    json_schema_file: str | PathLike[str] = option(
        "", "-jf --json-schema-file", "file with the JSON schema of the response", metavar="FILE"
    )
    regex: str = option(
        "", "--regex", "regular expression that the whole response must match", metavar="REGEX"
    )
    lark: str = option("", "--lark", "Lark grammar of the response", metavar="LARK")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.constraints:
            from llama_py.grammar.chosen import create_grammar  # slow to import

            create_grammar(self)

    @property
    def constraints(self) -> tuple[str, ...]:
        """Fields that constrain the response and are set."""
        return tuple(n for n in CONSTRAINTS if getattr(self, n) not in (None, ""))

    @property
    def chain(self) -> tuple[str, ...]:
        """The samplers in their order, each by its name in llama.cpp."""
        if self.sampler_seq:
            return tuple(_NAMES[character] for character in self.sampler_seq)
        return tuple(_ALIASES[word] for word in _words(self.samplers))

    @property
    def has_seed(self) -> bool:
        """True if the seed is fixed, not a new one each time."""
        return self.seed not in _RANDOM_SEEDS
