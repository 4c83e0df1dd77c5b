"""Types of keys and values in a KV cache."""

from __future__ import annotations

from ggml_py.types import BY_NAME

NO_CACHES = ("f64", "i8", "i16", "i32", "i64")
CACHE_TYPES = [name for name in BY_NAME if name not in NO_CACHES]
