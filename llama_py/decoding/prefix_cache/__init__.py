"""No prompt is computed twice: what sequences hold, states to return to, states in files."""

from __future__ import annotations

from llama_py.decoding.prefix_cache.cache import Reuse
from llama_py.decoding.prefix_cache.report import Reused
from llama_py.decoding.prefix_cache.slots import load_slot, save_slot

__all__ = ["Reuse", "Reused", "load_slot", "save_slot"]
