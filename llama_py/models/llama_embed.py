"""Llama for embeddings: attention within a batch, without a cache (models/llama-embed.cpp).

The reference creates an unused cache; if each sequence has a separate one, it splits batches.
"""

from __future__ import annotations

from llama_py.models.llama import Llama, LlamaHParams
from llama_py.models.trunks.encoder import Encoder


class LlamaEmbedHParams(LlamaHParams):
    cached = False


class LlamaEmbed(Encoder, Llama):
    arch = "llama-embed"
    HParams = LlamaEmbedHParams
    names = Llama.names
    result = "result_norm"
