"""Removal of spaces that tokens have and texts do not (llama-vocab.cpp:impl::detokenize)."""

from __future__ import annotations

import re

_PASSES = (
    (re.compile(rb" (?=[?!.,])"), b""),
    (re.compile(rb" ' "), b"'"),
    (re.compile(rb" (?='(?:[sm]|re|ve))"), b""),
)


def clean_up_spaces(data: bytes) -> bytes:
    """Remove spaces before punctuation and before 's, 'm, 're and 've, and around a lone '."""
    for pattern, by in _PASSES:
        data = pattern.sub(by, data)
    return data
