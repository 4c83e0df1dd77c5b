"""Data that a model keeps between ubatches: keys and values, recurrent states, or both."""

from __future__ import annotations

from llama_py.memory.create import Placing, create_memory
from llama_py.memory.group import MemoryGroup
from llama_py.memory.group_context import GroupContext
from llama_py.memory.kv import KVCache
from llama_py.memory.recurrent import RecurrentMemory
from llama_py.memory.shared import SharedMemory

__all__ = [
    "GroupContext",
    "KVCache",
    "MemoryGroup",
    "Placing",
    "RecurrentMemory",
    "SharedMemory",
    "create_memory",
]
