"""Modules at their former places, for one release: importing one warns and gives the new module."""

from __future__ import annotations

import sys
import warnings
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from ggml_py._moved import Finder

MOVED = {  # within llama_py; a package takes its modules along
    "calling": "text.chat_prompt",
    "checked_batch": "batch.checked_batch",
    "closing": "support.closing",
    "context_shift": "decoding.keep",
    "control_vector": "adapters.control_vector",
    "conversation": "text.conversation",
    "cparams": "hparams.cparams",
    "cut": "gguf.tensor_part",
    "declared": "weights.declarations",
    "diffusion": "text.diffusion",
    "embed": "text.embed",
    "file_types": "gguf.file_types",
    "fingerprint": "gguf.fingerprint",
    "following": "context.next_token",
    "forms": "hparams.forms",
    "generate": "text.generate",
    "geometry": "hparams.geometry",
    "gguf_file": "gguf.file",
    "gguf_metadata": "gguf.metadata",
    "gguf_split": "gguf.parts",
    "gguf_write": "gguf.write",
    "hints": "support.hints",
    "ik_types": "gguf.ik_types",
    "imatrix": "quantize.imatrix",
    "infill": "text.infill",
    "keys": "gguf.keys",
    "largest": "context.largest",
    "lens": "steering.lens",
    "like": "params.like",
    "linear": "graph.linear",
    "loaded": "loading.model",
    "locked": "weights.mlock",
    "lora": "adapters.lora",
    "mapped": "gguf.pages",
    "models._architecture": "models.trunks.architecture",
    "models._axes": "models.trunks.axes",
    "models._bert": "models.trunks.bert",
    "models._decoder": "models.trunks.decoder",
    "models._dflash_streams": "models.trunks.dflash_streams",
    "models._draft": "models.trunks.draft",
    "models._draft_heads": "models.trunks.draft_heads",
    "models._dsa": "models.trunks.dsa",
    "models._encoder": "models.trunks.encoder",
    "models._experts": "models.trunks.experts",
    "models._flagged_windows": "models.trunks.flagged_windows",
    "models._gemma": "models.trunks.gemma",
    "models._hunyuan": "models.trunks.hunyuan",
    "models._hybrid": "models.trunks.hybrid",
    "models._kimi": "models.trunks.kimi",
    "models._kv_shared": "models.trunks.kv_shared",
    "models._latent": "models.trunks.latent",
    "models._latent_dense": "models.trunks.latent_dense",
    "models._layer_norm": "models.trunks.layer_norm",
    "models._mamba_heads": "models.trunks.mamba_heads",
    "models._nextn": "models.trunks.nextn",
    "models._plain": "models.trunks.plain",
    "models._qwen_hybrid": "models.trunks.hybrid",
    "models._qwen_hybrid_moe": "models.trunks.hybrid",
    "models._rwkv": "models.trunks.rwkv",
    "models._ssm": "models.trunks.ssm",
    "models._streams": "models.trunks.streams",
    "models._t5": "models.trunks.t5",
    "models._unscaled_windows": "models.trunks.unscaled_windows",
    "outputs": "graph.outputs",
    "parallel": "weights.parallel",
    "placement": "weights.placement",
    "planning": "fit.planning",
    "prefix": "decoding.prefix",
    "progress": "support.progress",
    "prompts": "batch.prompts",
    "readers": "loading.readers",
    "ready": "context.warmup",
    "rendered": "text.chat_prompt",
    "rerank": "text.rerank",
    "reuse": "decoding.prefix_cache",
    "runner": "context.runner",
    "sae": "steering.sae",
    "settled": "context.checks",
    "share": "hparams.share",
    "signature": "support.signature",
    "speculative": "decoding.drafting",
    "speculative.length": "decoding.draft_length",
    "speculative.rollback": "decoding.rollback",
    "speculative.speculator": "decoding.speculator",
    "split": "loading.split",
    "splitter": "batch.splitter",
    "state": "context.state",
    "text_stream": "text.text_stream",
    "unembed": "hooks.unembed",
    "watched": "context.watched",
    "whole_file": "support.whole_file",
    "yarn": "hparams.yarn",
}


@cache
def finder() -> Finder:
    """The finder of moved modules of this package."""
    from ggml_py._moved import Finder

    return Finder("llama_py", MOVED)


class LazyFinder:
    """Loads the finder for the first module of this package that is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return finder().find_spec(name) if name.startswith("llama_py.") else None


def former(ctx: Any, name: str, module: str, kind: str) -> Any:
    """What an attribute of a context was, which is asked of a class now."""
    use = f"{module}.{kind}.of(ctx)"
    warnings.warn(f"Context.{name} has moved; use {use}", DeprecationWarning, stacklevel=3)
    return getattr(import_module(module), kind).of(ctx)


def install() -> None:
    """Let `import` find moved modules. Must be called once."""
    sys.meta_path.insert(0, LazyFinder())  # first, or a package's old modules would be loaded twice
