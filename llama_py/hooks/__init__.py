"""Hooks: node values that are captured or changed while a context decodes.

    with ctx.capture("l_out-*") as values:
        ctx.decode(ids)
    values["l_out-3"]                                   # float32 [n_tokens, n_embd]

    with ctx.patch("attn_norm-3", lambda x, at: 2 * x):
        ctx.decode(ids)

Use llama.cpp's names, which `llama-py-graph dump` lists, or TransformerLens's; see
`llama_py.hooks.names`. All other nodes stay fused; contexts without hooks have no overhead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggml_py._moved import former_names
from llama_py.hooks.capture import Capture
from llama_py.hooks.hook import Hook, HookContext
from llama_py.hooks.hooks import Hooks
from llama_py.hooks.patch import Patch

__all__ = ["Capture", "Hook", "HookContext", "Hooks", "Patch"]

if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, At="HookContext")
