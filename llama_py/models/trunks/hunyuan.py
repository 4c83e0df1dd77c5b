"""What Hunyuan's models share: queries and keys are normed after RoPE."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.hparams import HParams
from llama_py.weights import Weights

NAMES = {"Qcur_normed": "Qcur_norm", "Kcur_normed": "Kcur_norm"}


def late_normed(w: Weights, hp: HParams, turned: tuple[str, str] = ("Qcur", "Kcur")) -> Attention:
    d = hp.layers[w.il].n_embd_head_k
    norms = w.norm("attn_q_norm", d), w.norm("attn_k_norm", d)
    return Attention(
        w, hp, q_norm=norms[0], k_norm=norms[1], norm_late=True, turned=turned, name="attn_out"
    )
