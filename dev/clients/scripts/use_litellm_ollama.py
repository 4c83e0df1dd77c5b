"""litellm: the provider `ollama_chat`, and `ollama` for embeddings. It has no log probabilities."""

from __future__ import annotations

from feature import URL
from litellm_features import check_provider

check_provider(logprobs=False, embedding="ollama/demo", model="ollama_chat/demo", api_base=URL)
