"""Keyword arguments of functions that generate, for type checkers: the fields of GenerateParams and
AnswerParams, and their usual names in other libraries (`other_names.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from llama_py.params.choosers import Chooser, LogitsProcessor, Thinking


class StreamOptions(TypedDict, total=False):
    """The fields of GenerateParams, and their other names."""

    spec_type: str | Sequence[str]
    model_draft: Any
    spec_draft_type_k: str | None
    spec_draft_type_v: str | None
    spec_draft_n_max: int
    spec_draft_n_min: int
    spec_draft_p_min: float
    spec_draft_vocab: int
    spec_draft_adaptive: bool
    spec_ngram_simple_size_n: int
    spec_ngram_simple_size_m: int
    spec_ngram_map_k_size_n: int
    spec_ngram_map_k_size_m: int
    spec_ngram_map_k4v_size_n: int
    spec_ngram_map_k4v_size_m: int
    spec_ngram_map_k4v_min_hits: int
    spec_ngram_mod_n_match: int
    spec_ngram_mod_n_max: int
    spec_ngram_mod_n_min: int
    lookup_cache_static: str
    lookup_cache_dynamic: str
    max_tokens: int
    stop: str | Sequence[str]
    turn_ends: Sequence[str]
    special: bool
    preserved_tokens: Sequence[int]
    context_shift: bool
    n_keep: int
    sampler: Chooser | None
    thinking: Thinking | None
    logits_processors: Sequence[LogitsProcessor]
    logprobs: int | None
    seq_id: int
    before: Sequence[int]

    max_new_tokens: int
    max_completion_tokens: int
    max_output_tokens: int
    num_predict: int
    n_predict: int
    stop_sequences: str | Sequence[str]
    stop_strings: str | Sequence[str]
    stop_words: str | Sequence[str]


class AnswerOptions(StreamOptions, total=False):
    """The fields of AnswerParams, their other names, and OpenAI's `response_format`."""

    samplers: str | Sequence[str]
    sampler_seq: str
    seed: int
    ignore_eos: bool
    min_keep: int
    temp: float
    dynatemp_range: float
    dynatemp_exp: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    repeat_last_n: int
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: Sequence[str]
    adaptive_target: float
    adaptive_decay: float
    mirostat: int
    mirostat_lr: float
    mirostat_ent: float
    logit_bias: Mapping[int | str, float]
    grammar: str
    grammar_file: str | PathLike[str]
    json_schema: str | bool | Mapping[str, Any]
    json_schema_file: str | PathLike[str]
    regex: str
    lark: str

    random_seed: int
    random_state: int
    temperature: float
    repetition_penalty: float
    penalty_repeat: float
    guided_grammar: str
    ebnf: str
    guided_json: str | bool | Mapping[str, Any]
    guided_regex: str
    response_format: Mapping[str, Any] | None
