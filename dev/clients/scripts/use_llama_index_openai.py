"""llama-index-llms-openai-like, with llama-index-embeddings-openai-like."""

from __future__ import annotations

from typing import Any

from feature import KEY, MODEL, OPENAI, TEXTS, check_logprobs, check_vectors, run
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from llama_index_chat import MESSAGES, ChatFeatures

HOW: Any = {
    "model": MODEL, "api_base": OPENAI, "api_key": KEY, "is_chat_model": True,
    "is_function_calling_model": True, "should_use_structured_outputs": True,
    "context_window": 8192,
}  # fmt: skip
features = ChatFeatures(OpenAILike(**HOW))


def embeddings() -> str:
    made = OpenAILikeEmbedding(model_name=MODEL, api_base=OPENAI, api_key=KEY)
    return check_vectors(made.get_text_embedding_batch(TEXTS))


def logprobs() -> str:
    found: Any = OpenAILike(**HOW, logprobs=True, top_logprobs=2).chat(MESSAGES).logprobs
    return check_logprobs(max(one.logprob for one in token) for token in found)


run(
    "llama-index-llms-openai-like", chat=features.chat, stream=features.stream,
    tools=features.tools, schema=features.schema, embeddings=embeddings, logprobs=logprobs,
)  # fmt: skip
