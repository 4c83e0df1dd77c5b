"""Which special tokens eat the spaces beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_py.tokenizer.vocab import PREFIX, TokenType, Vocab

# Files whose <mask> eats the spaces before it.
_LSTRIP_MASK_PRES = ("jina-v2-de", "jina-v2-es", "jina-v2-code")
_LSTRIP_MASK_ARCHS = ("nomic-bert-moe", "jina-bert-v3")

SPECIAL_TYPES = (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN)


def stripped(
    meta: Mapping[str, Any], vocab: Vocab, types: Sequence[int]
) -> tuple[set[int], set[int]]:
    """The ids that strip to the left and to the right: known by names in the file only
    (llama-vocab.cpp:impl::load)."""
    pre, arch = str(meta.get(PREFIX + "pre", "")), str(meta.get("general.architecture", ""))
    name = str(meta.get("general.name", "")).lower()
    if any(p in pre for p in _LSTRIP_MASK_PRES) or any(a in arch for a in _LSTRIP_MASK_ARCHS):
        return set(vocab.ids_of(("<mask>",))), set()
    if "phi-3" in name or "phi3" in name:
        right = {i for i, type_ in enumerate(types) if type_ in SPECIAL_TYPES}
        right |= set(vocab.ids_of(("</s>",)))
        return set(), right - set(vocab.ids_of(("<unk>", "<s>", "<|endoftext|>")))
    if "modern-bert" in name:
        return set(vocab.ids_of(("[MASK]",))), set()
    return set(), set()
