"""Aliases of moved modules for one release: importing one warns and returns the new module."""

from __future__ import annotations

import sys
import warnings
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from ggml_py._moved import Finder

TRUNKS = """
    architecture axes bert decoder dflash_streams draft draft_heads dsa encoder experts
    flagged_windows gemma hunyuan hybrid kimi kv_shared latent latent_dense layer_norm mamba_heads
    nextn plain rwkv ssm streams t5 unscaled_windows
"""
MOVED = """
    adapters control_vector lora
    batch checked_batch prompts splitter
    context following:next_token largest:graph_reserve ready:warmup runner
    context settled:checks state watched:inspection
    decoding context_shift:keep prefix reuse:prefix_cache speculative:drafting
    decoding speculative.length:draft_length speculative.rollback:rollback
    decoding speculative.speculator:speculator
    fit planning
    gguf cut:tensor_part file_types fingerprint gguf_file:file gguf_metadata:metadata
    gguf gguf_split:parts gguf_write:write keys mapped:pages
    graph linear outputs
    hooks unembed
    hparams cparams forms:variants geometry:layer_shape share:shard yarn
    hparams hparams.forms:variants hparams.geometry:layer_shape
    loading loaded:model readers:weight_users split
    memory memory.kept:specs
    models.trunks models._qwen_hybrid:hybrid models._qwen_hybrid_moe:hybrid
    params like
    quantize imatrix
    steering lens sae
    support closing:resource hints progress signature whole_file
    text calling:chat_prompt conversation diffusion embed generate infill rendered:chat_prompt
    text rerank text_stream
    weights declared:declarations locked:mlock parallel placement
"""


@cache
def finder() -> Finder:
    """Return the finder of moved modules of this package."""
    from ggml_py._moved import Finder, places

    trunks = {f"models._{name}": f"models.trunks.{name}" for name in TRUNKS.split()}
    return Finder("llama_py", trunks | places(MOVED))


class LazyFinder:
    """Loads the finder for the first module of this package that is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return finder().find_spec(name) if name.startswith("llama_py.") else None


def former(ctx: Any, name: str, module: str, kind: str) -> Any:
    """Return the object that a former attribute of a context held, with a warning."""
    use = f"{module}.{kind}.for_context(ctx)"
    warnings.warn(f"Context.{name} is deprecated; use {use}", DeprecationWarning, stacklevel=3)
    return getattr(import_module(module), kind).for_context(ctx)


def install() -> None:
    """Let `import` find moved modules. Must be called once."""
    sys.meta_path.insert(0, LazyFinder())  # first, or a package's old modules would be loaded twice
