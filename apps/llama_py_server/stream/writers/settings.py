"""Settings of a reply's generation, named as in requests (server-task.cpp:task_params::to_json)."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llama_py.params import AnswerParams
    from llama_py.serving import Request
    from llama_py_server.models.state import ModelOptions, ModelState
    from llama_py_server.schema.completion import Delivery

_SAME = (
    "seed",
    "dynatemp_range",
    "top_k",
    "top_p",
    "min_p",
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
    "typical_p",
    "repeat_last_n",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "mirostat",
    "adaptive_target",
    "adaptive_decay",
    "ignore_eos",
    "min_keep",
)


def settings(request: Request, delivery: Delivery, options: ModelOptions) -> dict[str, Any]:
    """Return the settings that are never long."""
    s, chat = request.params, request.chat
    body: dict[str, Any] = {name: getattr(s, name) for name in _SAME}
    if not s.has_seed:
        body["seed"] = 2**32 - 1
    return body | {
        "temperature": s.temp,
        "dynatemp_exponent": s.dynatemp_exp,
        "mirostat_tau": s.mirostat_ent,
        "mirostat_eta": s.mirostat_lr,
        "max_tokens": s.max_tokens,
        "n_predict": s.max_tokens,
        "n_keep": s.n_keep,
        "n_discard": request.n_discard,
        "stream": delivery.stream,
        "n_probs": s.logprobs or 0,
        "chat_format": "Content-only" if chat is None else "peg",
        "reasoning_format": "none" if chat is None else chat.options.reasoning_format,
        "samplers": list(s.chain),
        "speculative.types": ",".join(options.drafters) or "none",
        "timings_per_token": delivery.timings_per_token,
        "post_sampling_probs": request.post_sampling_probs,
        "lora": [{"id": id, "scale": scale} for id, scale in (delivery.lora or {}).items()],
    }


def all_settings(request: Request, delivery: Delivery, state: ModelState) -> dict[str, Any]:
    """Return all settings of a request."""
    s = request.params
    biases = dict(s.logit_bias)
    if s.ignore_eos:
        biases |= dict.fromkeys(sorted(state.tokenizer.eog), -math.inf)
    return settings(request, delivery, state.options) | {
        "dry_sequence_breakers": list(s.dry_sequence_breakers),
        "stop": list(s.stop),
        "logit_bias": [{"bias": bias, "token": id} for id, bias in biases.items()],
        "grammar": _constraint(s),
        "preserved_tokens": list(s.preserved_tokens),
    }


def _constraint(params: AnswerParams) -> str:
    for name in params.constraints:
        value = getattr(params, name)
        return value if isinstance(value, str) else json.dumps(value)
    return ""
