"""Nomic Embed 1: BERT with RoPE and a gated feed-forward (models/nomic-bert.cpp)."""

from __future__ import annotations

from llama_py.blocks.feed_forward import FeedForward
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.bert import BertEncoder, BertHParams
from llama_py.models.trunks.decoder import Block
from llama_py.weights import Weights


class NomicBertHParams(BertHParams):
    rope_type = ROPE_NEOX


class NomicBert(BertEncoder):
    arch = "nomic-bert"
    HParams = NomicBertHParams
    sizes = {12: "137M"}

    def feed_forward(self, w: Weights, il: int) -> Block:
        n_ff = self.hp.layers[il].n_ff
        return FeedForward(w, self.hp.n_embd, n_ff, bias="unread", scaled=False)
