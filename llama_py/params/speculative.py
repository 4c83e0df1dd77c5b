"""Options of speculative decoding: tokens are drafted, then verified by the model at once."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llama_py.params import texts
from llama_py.params.caches import CACHE_TYPES
from llama_py.params.option import Params, option
from llama_py.params.rules import ValueRule, integers, numbers

FOLDER = Path(__file__).parents[1] / "decoding" / "drafting" / "drafters"
# Every file of the folder is a draft method; files with `_` have shared code.
_FILES = sorted(module.name for module in pkgutil.iter_modules([str(FOLDER)]))
DRAFTERS = tuple(name.replace("_", "-") for name in _FILES if not name.startswith("_"))
NONE = "none"


def _are_types(value: Any) -> bool:
    names = texts.words(value) if isinstance(value, str) else value
    return isinstance(names, Sequence) and {*names} <= {NONE, *DRAFTERS}


_COUNT = integers(1, 1024)
_TYPES = ValueRule(f"of {NONE}, {', '.join(DRAFTERS)}", _are_types, words=(NONE, *DRAFTERS))


@dataclass(frozen=True, kw_only=True)
class SpeculativeParams(Params):
    """Options of drafting: the arguments of `Speculator`; llama.cpp's names and defaults."""

    spec_type: str | Sequence[str] = option(
        (),
        "--spec-type",
        f"draft by these, the first that has a guess: {', '.join(DRAFTERS)}",
        parse=texts.words,
        many=True,
        check=_TYPES,
        metavar="NAME,...",
    )
    model_draft: Any = option(
        None,
        "-md --model-draft --spec-draft-model",
        "GGUF file (in Python also a loaded model)"
        " that drafts: a smaller model, NextN layers, or what was trained to draft for the model;"
        " which of the last two it is, it says itself",
        env="MODEL_DRAFT",
        metavar="FILE",
    )
    spec_draft_type_k: str | None = option(
        None,
        "--spec-draft-type-k -ctkd --cache-type-k-draft",
        "type of the K cache of a model that drafts (default: as -ctk)",
        choices=CACHE_TYPES,
        metavar="TYPE",
        env="SPEC_DRAFT_CACHE_TYPE_K",
    )
    spec_draft_type_v: str | None = option(
        None,
        "--spec-draft-type-v -ctvd --cache-type-v-draft",
        "type of its V cache (default: as -ctv)",
        choices=CACHE_TYPES,
        metavar="TYPE",
        env="SPEC_DRAFT_CACHE_TYPE_V",
    )
    spec_draft_n_max: int = option(
        3, "--spec-draft-n-max", "tokens that a model drafts at most", check=integers(1, 256)
    )
    spec_draft_n_min: int = option(
        0, "--spec-draft-n-min", "do without a model's draft of fewer tokens", check=integers(0)
    )
    spec_draft_p_min: float = option(
        0.0,
        "--spec-draft-p-min",
        "a model's draft ends before a token less likely than this",
        check=numbers(0, 1),
    )
    spec_draft_vocab: int = option(
        32768,
        "--spec-draft-vocab",
        "a model drafts only so many tokens: the first of the"
        " vocabulary, which are the frequent ones, and those of the text; 0: all of them",
        check=integers(0),
    )
    spec_draft_adaptive: bool = option(
        True,
        "--spec-draft-adaptive",
        "draft fewer tokens where few were accepted lately",
        off="--no-spec-draft-adaptive",
    )
    spec_ngram_simple_size_n: int = option(
        12,
        "--spec-ngram-simple-size-n",
        "ngram-simple: last tokens that are looked up",
        check=_COUNT,
    )
    spec_ngram_simple_size_m: int = option(
        48, "--spec-ngram-simple-size-m", "ngram-simple: tokens to draft", check=_COUNT
    )
    spec_ngram_map_k_size_n: int = option(
        12, "--spec-ngram-map-k-size-n", "ngram-map-k: last tokens that are looked up", check=_COUNT
    )
    spec_ngram_map_k_size_m: int = option(
        48, "--spec-ngram-map-k-size-m", "ngram-map-k: tokens to draft", check=_COUNT
    )
    spec_ngram_map_k4v_size_n: int = option(
        12,
        "--spec-ngram-map-k4v-size-n",
        "ngram-map-k4v: last tokens that are looked up",
        check=_COUNT,
    )
    spec_ngram_map_k4v_size_m: int = option(
        48, "--spec-ngram-map-k4v-size-m", "ngram-map-k4v: tokens to draft", check=_COUNT
    )
    spec_ngram_map_k4v_min_hits: int = option(
        1,
        "--spec-ngram-map-k4v-min-hits",
        "ngram-map-k4v: do without what was looked up less often",
        check=_COUNT,
    )
    spec_ngram_mod_n_match: int = option(
        24, "--spec-ngram-mod-n-match", "ngram-mod: last tokens that are looked up", check=_COUNT
    )
    spec_ngram_mod_n_max: int = option(
        64, "--spec-ngram-mod-n-max", "ngram-mod: tokens to draft", check=_COUNT
    )
    spec_ngram_mod_n_min: int = option(
        48, "--spec-ngram-mod-n-min", "ngram-mod: do without a draft of fewer", check=integers(0)
    )
    lookup_cache_static: str = option(
        "", "-lcs --lookup-cache-static", "ngram-cache: counts of a corpus", metavar="FILE"
    )
    lookup_cache_dynamic: str = option(
        "", "-lcd --lookup-cache-dynamic", "ngram-cache: counts of earlier answers", metavar="FILE"
    )

    @property
    def drafts(self) -> bool:
        """True if tokens are drafted, by a named method or the method of `model_draft`."""
        return bool(self.drafters) or self.model_draft is not None

    @property
    def drafters(self) -> tuple[str, ...]:
        """The names of `spec_type`, each once."""
        names = texts.words(self.spec_type) if isinstance(self.spec_type, str) else self.spec_type
        return tuple(dict.fromkeys(names)) if NONE not in names else ()
