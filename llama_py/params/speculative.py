"""Options of speculative decoding: tokens are drafted, then verified by the model at once."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
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
_TYPES = ValueRule(f"a list of {NONE}, {', '.join(DRAFTERS)}", _are_types, words=(NONE, *DRAFTERS))


class SpeculativeParams(Params):
    """Options of drafting: arguments of `Speculator`, with llama.cpp's names and defaults."""

    group = "speculative decoding"

    spec_type: str | Sequence[str] = option(
        (),
        "--spec-type",
        f"draft methods in order of preference; known methods: {', '.join(DRAFTERS)}",
        parse=texts.words,
        many=True,
        check=_TYPES,
        metavar="NAME,...",
    )
    model_draft: Any = option(
        None,
        "-md --model-draft --spec-draft-model",
        "GGUF file of a draft model; a smaller model, NextN layers, or layers trained to draft"
        " for the model; the file's metadata selects the method (Python: or a loaded model)",
        env="MODEL_DRAFT",
        metavar="FILE",
    )
    spec_draft_type_k: str | None = option(
        None,
        "--spec-draft-type-k -ctkd --cache-type-k-draft",
        "data type of the draft model's K cache (default: --cache-type-k)",
        choices=CACHE_TYPES,
        metavar="TYPE",
        env="SPEC_DRAFT_CACHE_TYPE_K",
    )
    spec_draft_type_v: str | None = option(
        None,
        "--spec-draft-type-v -ctvd --cache-type-v-draft",
        "data type of the draft model's V cache (default: --cache-type-v)",
        choices=CACHE_TYPES,
        metavar="TYPE",
        env="SPEC_DRAFT_CACHE_TYPE_V",
    )
    spec_draft_n_max: int = option(
        3, "--spec-draft-n-max", "maximum tokens per draft of a model", check=integers(1, 256)
    )
    spec_draft_n_min: int = option(
        0,
        "--spec-draft-n-min",
        "minimum tokens per draft of a model; shorter drafts are discarded",
        check=integers(0),
    )
    spec_draft_p_min: float = option(
        0.0,
        "--spec-draft-p-min",
        "minimum probability of a model's draft token; the draft ends before a less likely token",
        check=numbers(0, 1),
    )
    spec_draft_vocab: int = option(
        32768,
        "--spec-draft-vocab",
        "vocabulary size of draft models (0: all tokens); the first, most frequent tokens, plus"
        " the tokens of the text",
        check=integers(0),
    )
    spec_draft_adaptive: bool = option(
        True,
        "--spec-draft-adaptive",
        "shorten drafts while few draft tokens are accepted",
        off="--no-spec-draft-adaptive",
    )
    spec_ngram_simple_size_n: int = option(
        12, "--spec-ngram-simple-size-n", "ngram-simple: tokens per n-gram to look up", check=_COUNT
    )
    spec_ngram_simple_size_m: int = option(
        48, "--spec-ngram-simple-size-m", "ngram-simple: tokens per draft", check=_COUNT
    )
    spec_ngram_map_k_size_n: int = option(
        12, "--spec-ngram-map-k-size-n", "ngram-map-k: tokens per n-gram to look up", check=_COUNT
    )
    spec_ngram_map_k_size_m: int = option(
        48, "--spec-ngram-map-k-size-m", "ngram-map-k: tokens per draft", check=_COUNT
    )
    spec_ngram_map_k4v_size_n: int = option(
        12,
        "--spec-ngram-map-k4v-size-n",
        "ngram-map-k4v: tokens per n-gram to look up",
        check=_COUNT,
    )
    spec_ngram_map_k4v_size_m: int = option(
        48, "--spec-ngram-map-k4v-size-m", "ngram-map-k4v: tokens per draft", check=_COUNT
    )
    spec_ngram_map_k4v_min_hits: int = option(
        1,
        "--spec-ngram-map-k4v-min-hits",
        "ngram-map-k4v: minimum occurrences of an n-gram",
        check=_COUNT,
    )
    spec_ngram_mod_n_match: int = option(
        24, "--spec-ngram-mod-n-match", "ngram-mod: tokens per n-gram to look up", check=_COUNT
    )
    spec_ngram_mod_n_max: int = option(
        64, "--spec-ngram-mod-n-max", "ngram-mod: maximum tokens per draft", check=_COUNT
    )
    spec_ngram_mod_n_min: int = option(
        48,
        "--spec-ngram-mod-n-min",
        "ngram-mod: minimum tokens per draft; shorter drafts are discarded",
        check=integers(0),
    )
    lookup_cache_static: str = option(
        "",
        "-lcs --lookup-cache-static",
        "ngram-cache: file with n-gram counts of a corpus",
        metavar="FILE",
    )
    lookup_cache_dynamic: str = option(
        "",
        "-lcd --lookup-cache-dynamic",
        "ngram-cache: file with n-gram counts of earlier responses",
        metavar="FILE",
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
