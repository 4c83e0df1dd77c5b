"""Special tokens: end tokens, control tokens, and their extraction from a text.

Files have only a part of this information, so llama.cpp completes it by the tokens' texts
(llama-vocab.cpp:impl::load); the tables below are its tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_py.support.stopping import check_stopped
from llama_py.tokenizer.stripped import SPECIAL_TYPES, strip_ids
from llama_py.tokenizer.vocab import TokenType, Vocab

# A special id that is missing in the file is found by text; that token is a control token.
_TEXTS_OF_NAME: Mapping[str, tuple[str, ...]] = {
    "eot": (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
    ),
    "eom": ("<|eom_id|>",),
    "fim_pre": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}

# These ids end generation, and tokens with these texts as well.
_ENDING_NAMES = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
_ENDING_TEXTS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
)

# Markers of channels are part of a response, so they are shown.
_SHOWN_TEXTS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")

_C_SPACES = " \t\n\v\f\r"  # isspace


def classify(vocab: Vocab) -> tuple[list[int], dict[str, int], frozenset[int]]:
    """Return the completed token types and special ids, and the ids that end generation."""
    types, named = list(vocab.types), dict(vocab.special_ids)
    for name, texts in _TEXTS_OF_NAME.items():
        found = vocab.find_ids(texts)
        if name not in named and found:
            named[name] = found[0]
            types[found[0]] = TokenType.CONTROL

    ending = set(vocab.find_ids(_ENDING_TEXTS))
    for i in ending:
        types[i] = TokenType.CONTROL
    for i in vocab.find_ids(_SHOWN_TEXTS):
        types[i] = TokenType.USER_DEFINED
    ending |= {named[name] for name in _ENDING_NAMES if name in named}
    _spare_inner_ends(vocab, types, ending)
    return types, named, frozenset(ending)


def _spare_inner_ends(vocab: Vocab, types: list[int], ending: set[int]) -> None:
    """Exclude end tokens that occur inside a response in some models."""
    texts = {vocab.texts[i] for i in ending}
    inner: dict[str, TokenType] = {}
    if texts & {"<|call|>", "<|calls|>"} and texts & {"<|return|>", "<|flush|>"}:
        inner["<|end|>"] = TokenType.USER_DEFINED
    if texts & {"<|tool_response>", "<|plamo:eos|>"}:
        inner["</s>"] = TokenType.NORMAL
    for text in texts & inner.keys():
        ending.remove(vocab.ids[text])
        types[vocab.ids[text]] = inner[text]


@dataclass(frozen=True)
class Special:
    """A token found in a text before others; `lstrip`, `rstrip`: it strips adjacent spaces."""

    id: int
    text: str
    type: int
    lstrip: bool = False
    rstrip: bool = False


def special_tokens(meta: Mapping[str, Any], vocab: Vocab, types: Sequence[int]) -> list[Special]:
    """Return all tokens to find in texts, the longest (in UTF-8) first."""
    lstripped, rstripped = strip_ids(meta, vocab, types)
    specials = [
        Special(i, vocab.texts[i], type_, i in lstripped, i in rstripped)
        for i, type_ in enumerate(types)
        if type_ in SPECIAL_TYPES
    ]
    return sorted(specials, key=lambda s: -len(s.text.encode("utf-8", "surrogatepass")))


def partition(text: str, specials: Sequence[Special]) -> list[str | int]:
    """Split a text at its special tokens: a list of ids and of the texts between them.

    Search for one token at a time in the whole text, in the given order, like
    llama-vocab.cpp:tokenizer_st_partition.
    """
    parts: list[str | int] = [text] if text else []
    for special in specials:
        check_stopped()
        if special.text in text:
            parts = [piece for part in parts for piece in _cut(part, special)]
    return parts


def _cut(part: str | int, special: Special) -> Iterator[str | int]:
    if isinstance(part, int):
        yield part
        return
    start = 0
    while (at := part.find(special.text, start)) >= 0:
        left = part[start:at]
        if special.lstrip:
            left = left.rstrip(_C_SPACES)
        if left:
            yield left
        yield special.id
        start = at + len(special.text)
        while special.rstrip and part[start : start + 1] in tuple(_C_SPACES):
            start += 1
    if start < len(part):
        yield part[start:]
