"""Tiny models of ARWKV."""

from dev.tiny_models import Tiny
from dev.tiny_models.rwkv7 import GAIN, KEYS, MEAN, UNREAD

SHIFTED = {**KEYS, "attention.layer_norm_rms_epsilon": 1e-6, "token_shift_count": 1}
del SHIFTED["attention.layer_norm_epsilon"]

# one sequence: llama.cpp keeps the wrong tokens of several
TINY = {
    "gated": Tiny(keys=SHIFTED, mean=MEAN, gain=GAIN, unread=UNREAD, sequences=1),
    "plain": Tiny(
        keys=SHIFTED, without=["*.time_mix_[gl][12n].*"], mean=MEAN, gain=GAIN, unread=UNREAD,
        familiar=True, sequences=1,
    ),
}  # fmt: skip
