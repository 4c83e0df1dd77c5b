"""Types of keys and values in a KV cache."""

from __future__ import annotations

from ggml_py.types import BY_NAME, GGMLType

NO_CACHES = ("f64", "i8", "i16", "i32", "i64")
IK_LLAMA_CPP = range(134, 230)  # numbers of its types that only weights have


def _is_cache(type: GGMLType) -> bool:
    weights_only = type.id in IK_LLAMA_CPP and not type.name.startswith("p")  # PrismML's
    return type.name not in NO_CACHES and not weights_only


CACHE_TYPES = [name for name, type in BY_NAME.items() if _is_cache(type)]
