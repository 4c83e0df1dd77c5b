"""Jina Embeddings 3: BERT with RoPE (models/jina-bert-v3.cpp)."""

from __future__ import annotations

from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.bert import BertEncoder, BertHParams


class JinaBertV3HParams(BertHParams):
    rope_type = ROPE_NEOX


class JinaBertV3(BertEncoder):
    arch = "jina-bert-v3"
    HParams = JinaBertV3HParams
    sizes = {24: "558M"}
