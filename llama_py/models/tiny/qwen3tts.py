"""Tiny models of Qwen3-TTS."""

from llama_py.models.tiny import Tiny
from llama_py.models.tiny.qwen3vl import KEYS

# Its own head would have 3072 tokens.
TINY = {"dense": Tiny(keys=KEYS, without=["*.bias", "output.weight"], familiar=True)}
