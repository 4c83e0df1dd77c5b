"""Low-rank adapters: files, which sequence uses which, and what they add to a graph."""

from llama_py.adapters.lora.adapter import Adapter, Base
from llama_py.adapters.lora.applied import NO_LORAS, Loras
from llama_py.adapters.lora.choice import AdapterChoice

__all__ = ["NO_LORAS", "Adapter", "AdapterChoice", "Base", "Loras"]
