"""The function of experts' scores: its names in config.json, and its number in a GGUF file."""

from __future__ import annotations

import logging
from typing import Any

from ggml_py.errors import ModelError

log = logging.getLogger("llama_py")

NUMBERS = {"softmax": 1, "sigmoid": 2, "sqrtsoftplus": 4}  # expert_gating_func
EXPERT_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts")
# The function of the scores, by model_type of transformers
TYPES_SCORES = dict.fromkeys(
    (
        "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_linear", "glm4_moe_lite", "glm_moe_dsa",
        "dots1", "dots3_note", "minimax_m2", "minimax_m3", "bailing_moe_v2", "exaone_moe",
    ),
    "sigmoid",
)  # fmt: skip
SCORE_NAMES = (
    "score_function", "scoring_func", "score_func", "moe_router_activation",
    "moe_router_activation_func", "expert_selection_fn",
)  # fmt: skip


def choose_score(model_type: Any) -> str | None:
    """Return the function of a model with experts by its type, with a warning; None if unknown.
    transformers 5 does not store it, and without it llama.cpp takes softmax."""
    score = TYPES_SCORES.get(str(model_type))
    if score is not None:
        log.warning(
            "config.json does not name the function of the experts' scores; models of the "
            "type %s use %s",
            model_type,
            score,
        )
    return score


def score_number(score: Any) -> int:
    """Return the number of a function. Raises ModelError for an unknown one."""
    if score not in NUMBERS:
        known = ", ".join(NUMBERS)
        raise ModelError(f"scores of experts must be {known}, got {str(score)[:50]!r}")
    return NUMBERS[score]
