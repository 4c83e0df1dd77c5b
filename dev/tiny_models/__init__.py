"""Tiny models: a small file of every architecture, the same bytes everywhere, for tests and trials.

A file of this folder, named like the architecture's own, has one dictionary of variants:

    TINY = {"dense": Tiny(keys={"block_count": 2, "embedding_length": 64, ...})}

Which tensors there are, and their shapes, is not written down: it is what the model declares
(`Invented`). Their values come from the tensor's name (`values`).
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
from llama_py.models import spelled


class Wide(int):
    """A number of metadata that has 64 bits in the file."""


@dataclass(frozen=True)
class Tiny:
    """One variant of an architecture. Patterns are fnmatch's, of whole names of tensors.

    keys       metadata without the architecture's prefix; a key that starts with "/" has no prefix.
               `COMMON` has those that are the same everywhere
    without    optional tensors that are left out, in addition to `ALTERNATIVES`
    keep       those that are there although a pattern leaves them out
    gain       factors on the random part of values, to make every branch of the graph matter
    mean       the part of values that is not random, where it is another than usual
    table      patterns of tensors of whole numbers below so many, none twice in a row
    unread     shapes of tensors that are in the file, but are not for the model
    familiar   all its blocks, and what its layers keep, are in other models too: tests of what any
               model must do run over those, and over all of them with LLAMA_PY_TEST_MODELS=every
    unrecorded   llama.cpp cannot run it
    drafts_for   the tiny model that it drafts for, if it can do nothing else

    What is recorded of llama.cpp (dev/record/record_golden.py):

    prompt     tokens of the prompt, more than the windows have
    first      position of its first token
    steps      tokens that are then chosen greedily
    sequences  how many are decoded together
    pooling    kinds of embeddings: "none" (of each token), "mean", "cls", "last"
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
    drafts_for: tuple[str, str] | None = None
    prompt: int = 40
    first: int = 0
    steps: int = 6
    sequences: int = 3
    pooling: Sequence[str] = ()

    @property
    def n_vocab(self) -> int:
        return int({**COMMON, **self.keys}["vocab_size"])


# What many start from; heads are a quarter of the channels, or wider. A key stands in a file where
# its dictionary has it first.
CHANNELS: dict[str, Any] = {"block_count": 2, "embedding_length": 64, "feed_forward_length": 96}
SIZES = {**CHANNELS, "attention.head_count": 4, "attention.head_count_kv": 2}
WIDE = {**SIZES, "attention.key_length": 32, "attention.value_length": 32}
EXPERTS = {"expert_feed_forward_length": 48, "expert_count": 6, "expert_used_count": 3}
MOE = {**CHANNELS, **EXPERTS, **WIDE}

COMMON: dict[str, Any] = {"vocab_size": 64, "context_length": 256}

# Other forms of what is there anyway; what no graph reads; scales that llama.cpp does not know.
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
    """By (architecture, variant), those of an architecture one after the other."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    found = {(spelled(n), variant): one for n in names for variant, one in _variants(n).items()}
    return MappingProxyType(found)


def find(arch: str, variant: str) -> Tiny:
    """UnknownArchitecture with the known ones if there is none."""
    if (arch, variant) not in every():
        known = ", ".join(f"{a} {v}" for a, v in every())
        raise UnknownArchitecture(f"no tiny model {arch} {variant}; there are {known}")
    return every()[arch, variant]


def _variants(module: str) -> dict[str, Tiny]:
    found: dict[str, Tiny] = import_module(f"{__name__}.{module}").TINY
    return found


def metadata(arch: str, tiny: Tiny) -> dict[str, Any]:
    """What the file says, in its order."""
    keys = {**COMMON, **tiny.keys}
    named = {k[1:] if k[0] == "/" else f"{arch}.{k}": v for k, v in keys.items()}
    texts = {"model": "test", "tokens": [f"tok_{i}" for i in range(tiny.n_vocab)]}
    vocabulary = {f"tokenizer.ggml.{k}": v for k, v in texts.items()}
    return {"general.architecture": arch, **vocabulary, **named}


def write(arch: str, variant: str, folder: Path) -> Path:
    """The file `arch-variant.gguf`, F32."""
    return write_file(folder / f"{arch}-{variant}.gguf", arch, find(arch, variant))


def write_file(path: Path, arch: str, tiny: Tiny) -> Path:
    """A file of any architecture, F32."""
    from dev.tiny_models._file import gguf
    from dev.tiny_models._invent import tensors

    path.write_bytes(gguf(metadata(arch, tiny), tensors(arch, tiny)))
    return path
