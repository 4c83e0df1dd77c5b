"""Common part of Hunyuan's models: norms of queries and keys after RoPE."""

from __future__ import annotations

from llama_py.blocks.attention import Attention, LateNormedAttention, head_norms
from llama_py.hparams import HParams
from llama_py.weights import Weights

NAMES = {"Qcur_normed": "Qcur_norm", "Kcur_normed": "Kcur_norm"}


def late_normed(w: Weights, hp: HParams, turned: tuple[str, str] = ("Qcur", "Kcur")) -> Attention:
    norms = head_norms(w, hp)
    return LateNormedAttention(w, hp, norms=norms, turned=turned, name="attn_out")
