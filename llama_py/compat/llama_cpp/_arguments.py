"""Arguments of the methods of `Llama`: logits processors, stopping criteria, options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from llama_py.batch import F32
from llama_py.compat.llama_cpp._options import NamedOptions
from llama_py.params.option import option
from llama_py.params.rules import ValueRule, integers

Ids = npt.NDArray[np.intc]
LogitsProcessor = Callable[[Ids, F32], F32]
StoppingCriteria = Callable[[Ids, F32], bool]


class LogitsProcessorList(list[LogitsProcessor]):
    """Functions that change the next logits [n_vocab], called in order with all tokens."""

    def __call__(self, input_ids: Ids, scores: F32) -> F32:
        """Return the logits after all functions."""
        for process in self:
            scores = process(input_ids, scores)
        return scores


class StoppingCriteriaList(list[StoppingCriteria]):
    """Functions that end a response; their arguments are the tokens and the next logits."""

    def __call__(self, input_ids: Ids, logits: F32) -> bool:
        """Return True if a function returns True."""
        return any([stops(input_ids, logits) for stops in self])


class MinTokensLogitsProcessor:
    """Logits processor that prevents the end token before a response has min_tokens tokens."""

    def __init__(self, min_tokens: int, token_eos: int) -> None:
        """Count from the first call's tokens."""
        self.min_tokens, self.token_eos = min_tokens, token_eos
        self.prompt_tokens: int | None = None

    def __call__(self, input_ids: Ids, scores: F32) -> F32:
        """Set the end token's logit to -inf in a response that is too short."""
        if self.prompt_tokens is None:
            self.prompt_tokens = len(input_ids)
        if len(input_ids) - self.prompt_tokens < self.min_tokens:
            scores[self.token_eos] = -np.inf
        return scores


_COUNT = ValueRule("an integer or None", lambda value: value is None or integers().holds(value))


class ChainOptions(NamedOptions):
    """Options for choosing tokens, with llama-cpp-python's names and defaults."""

    top_k: int = option(40, "", "keep the k most likely tokens (0: all)")
    top_p: float = option(0.95, "", "keep the most likely tokens up to total probability p")
    min_p: float = option(0.05, "", "drop tokens less likely than p times the most likely")
    typical_p: float = option(1.0, "", "locally typical sampling up to probability p (1: off)")
    repeat_penalty: float = option(1.0, "", "penalty factor for repeated tokens (1: off)")
    frequency_penalty: float = option(0.0, "", "penalty per repetition (0: off)")
    presence_penalty: float = option(0.0, "", "penalty of repeated tokens (0: off)")
    tfs_z: float = option(1.0, "", "no effect, like in llama-cpp-python")
    mirostat_mode: int = option(0, "", "Mirostat version 1 or 2 (0: off)", check=integers(0, 2))
    mirostat_tau: float = option(5.0, "", "Mirostat: target surprise, in bits")
    mirostat_eta: float = option(0.1, "", "Mirostat: learning rate")
    logits_processor: Any = option(None, "", "LogitsProcessorList that changes the logits")
    grammar: Any = option(None, "", "LlamaGrammar of the response")


class SampleOptions(ChainOptions):
    """Options for choosing one token: arguments of `Llama.sample`."""

    function = "sample"

    temp: float = option(0.8, "", "temperature (0: the most likely token; negative: 1, all tokens)")
    penalize_nl: bool = option(True, "", "no effect, like in llama-cpp-python")
    idx: int | None = option(None, "", "index of the token to continue (None: the last)")


class GenerateOptions(ChainOptions):
    """Options for a list of tokens: arguments of `Llama.generate`."""

    function = "generate"

    temp: float = option(0.8, "", "temperature (0: the most likely token; negative: 1, all tokens)")
    penalize_nl: bool = option(True, "", "no effect, like in llama-cpp-python")
    reset: bool = option(True, "", "False: continue the tokens in memory with the prompt")
    stopping_criteria: Any = option(None, "", "StoppingCriteriaList that ends the response")


class ResponseOptions(ChainOptions):
    """Options of completions and chat completions."""

    stop: str | Sequence[str] | None = option(None, "", "texts that end the response")
    stream: bool = option(False, "", "return an iterator of chunks")
    seed: int | None = option(None, "", "random seed (None: the next of the object's seeds)")
    model: str | None = option(None, "", "name of the model in the response (None: the path)")
    logit_bias: Mapping[Any, float] | None = option(None, "", "bias of logits, by token id")


class CompletionOptions(ResponseOptions):
    """Options for a completion: arguments of `Llama.create_completion`."""

    function = "create_completion"

    suffix: str | None = option(
        None, "", "text after the gap, for a model with infill tokens; else added to the response"
    )
    max_tokens: int | None = option(
        16, "", "maximum tokens (None, or below 1: no limit)", check=_COUNT
    )
    temperature: float = option(0.8, "", "temperature (0: always the most likely token)")
    logprobs: int | None = option(None, "", "return log probabilities of the n most likely tokens")
    echo: bool = option(False, "", "begin the text with the prompt")
    stopping_criteria: Any = option(None, "", "StoppingCriteriaList that ends the response")


class ChatCompletionOptions(ResponseOptions):
    """Options for a chat: arguments of `Llama.create_chat_completion`."""

    function = "create_chat_completion"

    functions: Sequence[Mapping[str, Any]] | None = option(None, "", "former form of tools")
    function_call: Any = option(None, "", "former form of tool_choice")
    tools: Sequence[Mapping[str, Any]] | None = option(None, "", "functions that may be called")
    tool_choice: Any = option(None, "", "'none', 'auto', 'required', or a function")
    response_format: Mapping[str, Any] | None = option(
        None, "", "format of the response, such as {'type': 'json_object', 'schema': {...}}"
    )
    max_tokens: int | None = option(None, "", "maximum tokens (None, or below 1: no limit)")
    temperature: float = option(0.2, "", "temperature (0: always the most likely token)")
    logprobs: bool | None = option(None, "", "return log probabilities of tokens")
    top_logprobs: int | None = option(None, "", "number of most likely tokens to return")
