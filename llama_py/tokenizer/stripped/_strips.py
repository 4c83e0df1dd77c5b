"""Declaration of special tokens that strip spaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llama_py.tokenizer.vocab import PREFIX


@dataclass(frozen=True)
class Strips:
    """Special tokens that strip adjacent spaces, for files with a matching word.

    arch, pre, name  words: in general.architecture, in tokenizer.ggml.pre, in general.name (in
                     lowercase)
    left             texts of tokens that strip the spaces before them
    right            texts of tokens that strip later spaces; `all_right`: all special tokens do
    spared           exceptions
    order            priority if several match: the lowest applies
    """

    arch: tuple[str, ...] = ()
    pre: tuple[str, ...] = ()
    name: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    all_right: bool = False
    spared: tuple[str, ...] = ()
    order: int = 0

    def holds(self, meta: Mapping[str, Any]) -> bool:
        """Return True if the declaration applies to a file."""
        said = (
            (str(meta.get("general.architecture", "")), self.arch),
            (str(meta.get(PREFIX + "pre", "")), self.pre),
            (str(meta.get("general.name", "")).lower(), self.name),
        )
        return any(word in text for text, words in said for word in words)
