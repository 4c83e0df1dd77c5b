"""Prefix cache: tokens in memory, checkpoints to return to, and saved states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggml_py._moved import former_names
from llama_py.decoding.prefix_cache.cache import PrefixCache
from llama_py.decoding.prefix_cache.report import PrefixMatch
from llama_py.decoding.prefix_cache.slots import load_slot, restore_slot, save_slot, serialize_slot

__all__ = ["PrefixCache", "PrefixMatch", "load_slot", "restore_slot", "save_slot", "serialize_slot"]

if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, Reuse="PrefixCache", Reused="PrefixMatch")
