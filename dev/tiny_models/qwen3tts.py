"""Tiny models of Qwen3-TTS."""

from dev.tiny_models import Tiny
from dev.tiny_models.qwen3vl import KEYS

# A separate head would have 3072 tokens.
TINY = {"dense": Tiny(keys=KEYS, without=["*.bias", "output.weight"], familiar=True)}
