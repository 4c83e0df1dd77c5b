"""Other names of options in flags and libraries: accepted names, and names for errors about unknown
options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llama_py.params.near import did_you_mean

# Names in OpenAI's API, transformers, vLLM, ollama and llama-cpp-python with the same meaning:
# `generate`, `stream`, `chat` and `Conversation` accept them.
_ALIASES = {
    "max_tokens": "max_new_tokens max_completion_tokens max_output_tokens num_predict n_predict",
    "temp": "temperature",
    "stop": "stop_sequences stop_strings stop_words",
    "repeat_penalty": "repetition_penalty penalty_repeat",
    "seed": "random_seed random_state",
    "json_schema": "guided_json",
    "regex": "guided_regex",
    "grammar": "guided_grammar ebnf",
}
# Names with another meaning or form, or options of other functions: for errors.
_OTHERS = {
    "max_tokens": "max_length",
    "temp": "do_sample",
    "logprobs": "top_logprobs",
    "json_schema": "response_format format",
    "n_ctx": "num_ctx context_length context_size max_model_len max_seq_len",
    "n_batch": "num_batch",
    "n_threads": "num_thread num_threads",
    "n_gpu_layers": "num_gpu n_gpu_layer gpu_layers",
    "device": "device_map devices",
    "path": "model_path model filename",
}
_ALIAS_OF = {other: name for name, others in _ALIASES.items() for other in others.split()}
_NAME_OF = _ALIAS_OF | {other: name for name, others in _OTHERS.items() for other in others.split()}


Names = Mapping[str, Sequence[str]]  # flags by option


def suggest_option(name: str, own: Names, others: Mapping[str, Names]) -> str:
    """Return the option that an unknown name means, or the call that takes it; empty if unknown.

    Args:
        name: Unknown name.
        own: Options of the call.
        others: Options of other calls, by the call with `{}` for the option.
    """
    meant = _resolve_name(name, [own, *others.values()])
    if meant not in own:
        for call, names in others.items():
            if meant in names:
                return f"use {call.format(f'{meant}=...')}"
    return f"did you mean {meant}?" if meant != name else did_you_mean(name, own)


def _resolve_name(name: str, options: Iterable[Names]) -> str:
    """Return the option with this name, flag (`--n-predict`) or name elsewhere, else the name."""
    flag = name.replace("_", "-")
    for names in options:
        if name in names:
            return name
        for known, flags in names.items():
            if {f"-{flag}", f"--{flag}"} & {*flags}:
                return known
    return _NAME_OF.get(name, name)


def resolve_aliases(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by the names of `AnswerParams`. `response_format` becomes its constraint.

    Raises TypeError for two names of one option, GrammarError for an unknown `response_format`.
    """
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name == "response_format":
            from llama_py.grammar.response_format import sampling_options  # slow to import

            given = sampling_options(value)
        else:
            given = {_ALIAS_OF.get(name, name): value}
        for known in given.keys() & found.keys():
            raise TypeError(f"{name} sets {known}, which is set twice; remove one")
        found |= given
    return found
