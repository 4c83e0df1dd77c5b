"""litellm: the provider `openai` with a base URL."""

from __future__ import annotations

from feature import KEY, OPENAI
from litellm_features import check_provider

check_provider(logprobs=True, model="openai/demo", api_base=OPENAI, api_key=KEY)
