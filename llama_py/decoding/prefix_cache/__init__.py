"""Prefix cache: tokens in memory, checkpoints to return to, and saved states."""

from __future__ import annotations

from llama_py.decoding.prefix_cache.cache import PrefixCache
from llama_py.decoding.prefix_cache.report import Reused
from llama_py.decoding.prefix_cache.slots import load_slot, save_slot

Reuse = PrefixCache  # its former name, for one release

__all__ = ["PrefixCache", "Reuse", "Reused", "load_slot", "save_slot"]
