"""Tiny models: a small file of every architecture, the same bytes everywhere, for tests and trials.

A file of this folder, named like the architecture's own, has one dictionary of variants:

    TINY = {"dense": Tiny(keys={"block_count": 2, "embedding_length": 64, ...})}

Tensors and their shapes are not written down: the model declares them (`Invented`). Each value is
computed from the tensor's name (`values`).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ggml_py.errors import UnknownArchitecture
from llama_py.models import architecture_name


class Wide(int):
    """A number of metadata that has 64 bits in the file."""


@dataclass(frozen=True)
class Tiny:
    """One variant of an architecture. Patterns are fnmatch's, of whole names of tensors.

    keys       metadata without the architecture's prefix; a key that starts with "/" has no prefix.
               `COMMON` has keys that are the same in all models
    without    optional tensors to omit, in addition to `ALTERNATIVES`
    keep       tensors to include although another pattern omits them
    gain       factors on the random part of values, to make every branch of the graph matter
    mean       the constant part of values, if it is not the default
    table      patterns of integer tensors, with an upper bound; no value repeats in a row
    unread     shapes of tensors that the model does not read, or that have sizes which no key has
    familiar   all its blocks, and its layers' memory, are in other models also; general tests skip
               it unless LLAMA_PY_TEST_MODELS=every
    unrecorded   llama.cpp cannot run it
    newest     only a later llama.cpp than the reference can run it (dev/record/newest)
    runs       runs to record (dev/record/golden/runs.py), if not all that apply
    forms      variants of blocks (llama_py.blocks.known_forms) of the reference, if a later
               llama.cpp has others
    drafts_for   the tiny target model, for a pure draft model

    Options of the recording (dev/record/record_golden.py):

    prompt     tokens of the prompt, more than the attention windows
    first      position of its first token
    steps      number of greedy tokens after it
    sequences  number of sequences decoded together
    marks      of tokens, if the model scores options (Batch.marks); the prompt's length
    pooling    types of embeddings: "none" (of each token), "mean", "cls", "last"
    """

    keys: Mapping[str, Any]
    without: Sequence[str] = ()
    keep: Sequence[str] = ()
    gain: Mapping[str, float] = field(default_factory=dict)
    mean: Mapping[str, float] = field(default_factory=dict)
    table: Mapping[str, int] = field(default_factory=dict)
    unread: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    familiar: bool = False
    unrecorded: bool = False
    newest: bool = False
    runs: Sequence[str] = ()
    forms: Mapping[str, str] = field(default_factory=dict)
    drafts_for: tuple[str, str] | None = None
    prompt: int = 40
    first: int = 0
    steps: int = 6
    sequences: int = 3
    marks: str = ""
    pooling: Sequence[str] = ()

    @property
    def n_vocab(self) -> int:
        return int({**COMMON, **self.keys}["vocab_size"])


# Base values of many models; heads have a quarter of the dimensions, or more. A key's position in
# a file is its first position in the dictionary.
CHANNELS: dict[str, Any] = {"block_count": 2, "embedding_length": 64, "feed_forward_length": 96}
SIZES = {**CHANNELS, "attention.head_count": 4, "attention.head_count_kv": 2}
WIDE = {**SIZES, "attention.key_length": 32, "attention.value_length": 32}
EXPERTS = {"expert_feed_forward_length": 48, "expert_count": 6, "expert_used_count": 3}
MOE = {**CHANNELS, **EXPERTS, **WIDE}

# Runs of a model with NextN layers, if the later llama.cpp builds another graph of the trunk.
ONLY_DRAFT = ("nodes-draft", "nodes-draft-fa-off", "draft", "exact-draft")
DRAFT_RUNS = (*ONLY_DRAFT, "trunk", "logits", "exact", "sequences")

COMMON: dict[str, Any] = {"vocab_size": 64, "context_length": 256}

# Alternative tensors, tensors that no graph reads, and scales unknown to llama.cpp.
ALTERNATIVES = (
    "*.attn_qkv.weight",
    "*.ffn_gate_up_exps.*",
    "*.ssm_in.weight",
    "*.attn_kv_b.weight",
    "rope_factors_*",
    "*.input_scale",
    "cls.*",
    "*.ffn_gate_inp*.scale",
    "*.ssm_conv1d.scale",
)


@cache
def every() -> Mapping[tuple[str, str], Tiny]:
    """Return all models by (architecture, variant), sorted by architecture."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    found = {
        (architecture_name(n), variant): one for n in names for variant, one in _variants(n).items()
    }
    return MappingProxyType(found)


def find(arch: str, variant: str) -> Tiny:
    """Return a tiny model; UnknownArchitecture with the known models if it does not exist."""
    if (arch, variant) not in every():
        known = ", ".join(f"{a} {v}" for a, v in every())
        raise UnknownArchitecture(f"no tiny model {arch} {variant}; there are {known}")
    return every()[arch, variant]


def _variants(module: str) -> dict[str, Tiny]:
    found: dict[str, Tiny] = import_module(f"{__name__}.{module}").TINY
    return found


def metadata(arch: str, tiny: Tiny) -> dict[str, Any]:
    """Return the metadata of the file, in order."""
    keys = {**COMMON, **tiny.keys}
    named = {k[1:] if k[0] == "/" else f"{arch}.{k}": v for k, v in keys.items()}
    texts = {"model": "test", "tokens": [f"tok_{i}" for i in range(tiny.n_vocab)]}
    vocabulary = {f"tokenizer.ggml.{k}": v for k, v in texts.items()}
    return {"general.architecture": arch, **vocabulary, **named}


def write(arch: str, variant: str, folder: Path) -> Path:
    """Write the file `arch-variant.gguf`, F32."""
    return write_file(folder / f"{arch}-{variant}.gguf", arch, find(arch, variant))


def write_file(path: Path, arch: str, tiny: Tiny) -> Path:
    """Write a file of any architecture, F32."""
    from dev.tiny_models._file import gguf
    from dev.tiny_models._invent import tensors

    path.write_bytes(gguf(metadata(arch, tiny), tensors(arch, tiny)))
    return path
