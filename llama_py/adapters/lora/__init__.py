"""LoRA adapters: files, their choice per sequence, and their nodes in a graph."""

from llama_py.adapters.lora.adapter import Adapter, Base
from llama_py.adapters.lora.applied import NO_LORAS, Loras
from llama_py.adapters.lora.choice import AdapterChoice

__all__ = ["NO_LORAS", "Adapter", "AdapterChoice", "Base", "Loras"]
