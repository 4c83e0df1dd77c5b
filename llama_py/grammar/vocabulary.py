"""Model vocabulary for llguidance: a trie of the tokens' bytes, made once per tokenizer."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from ggml_py.errors import GrammarError
from llama_py.grammar.compiled import Grammar, matcher_class
from llama_py.grammar.messages import one_line
from llama_py.grammar.nodes import TokenChoice
from llama_py.grammar.trial import limits, roomy
from llama_py.grammar.unique import TokenTexts, UniqueKeys
from llama_py.tokenizer import Tokenizer

NO_EXTENSION = "NoExtension"  # llguidance's term
BEFORE = "\x02"  # a character that is part of no other token
N_STARTS = 16  # grammars kept for each tokenizer
NONE: frozenset[int] = frozenset()
_PIECES: WeakKeyDictionary[Tokenizer, TokenTexts] = WeakKeyDictionary()
_MADE: WeakKeyDictionary[Tokenizer, dict[frozenset[int], Any]] = WeakKeyDictionary()
_STARTS: WeakKeyDictionary[Tokenizer, dict[tuple[Grammar, frozenset[int]], Any]] = (
    WeakKeyDictionary()
)


class _GuidanceTokens:
    """Tokenizer interface for llguidance. Control tokens are not text unless they are shown.
    Without an end token one is added that is never chosen."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, shown: frozenset[int]) -> None:
        n = tokenizer.n_vocab
        self.tokens = [*tokenizer.pieces, *([] if tokenizer.eog else [b"<end>"])]
        self.special_token_ids = [
            id
            for id in range(len(self.tokens))
            if id >= n or (tokenizer.is_control(id) and id not in shown)
        ]
        self.ends = sorted(tokenizer.eog) or [n]
        self.eos_token_id = self.ends[0]
        self._tokenizer = tokenizer
        self._puts_space = tokenizer.vocab.add_space_prefix

    def __call__(self, text: bytes | str) -> list[int]:
        """Tokenize text that follows earlier text, without a space before it."""
        shown = text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text
        ids = self._tokenizer.tokenize(shown, False, False)
        if not self._puts_space or not ids:
            return ids
        behind, before = self._tokenizer.tokenize(BEFORE + shown, False, False), b""
        while behind and not before.endswith(BEFORE.encode()):
            before += self.tokens[behind.pop(0)]
        return behind or ids


def vocabulary(tokenizer: Tokenizer, shown: frozenset[int] = NONE) -> Any:
    """Return the LLTokenizer of a tokenizer. shown: control tokens that are texts."""
    shown -= frozenset(tokenizer.eog)
    made = _MADE.setdefault(tokenizer, {})
    found = made.get(shown)
    if found is None:
        from llguidance import LLTokenizer, TokenizerWrapper

        tokens = _GuidanceTokens(tokenizer, shown)
        found = made[shown] = LLTokenizer(
            TokenizerWrapper(tokens), n_vocab=len(tokens.tokens), eos_token=tokens.ends
        )
    return found


def matcher(grammar: Grammar, tokenizer: Tokenizer, shown: frozenset[int] = NONE) -> Any:
    """Return an LLMatcher, or UniqueKeys, at the start of a response; shown: control tokens as
    texts. Recent grammars are cached: a large one takes 0.1 s.

    Raises GrammarError for tokens that the vocabulary lacks, and if no response can begin.
    """
    made, key = _STARTS.setdefault(tokenizer, {}), (grammar, shown)
    found = made.get(key)
    if found is None:
        found = _start(grammar, tokenizer, shown)
        for old in [*made][: 1 - N_STARTS]:
            made.pop(old, None)
        made[key] = found
    return found.deep_copy()


def _start(grammar: Grammar, tokenizer: Tokenizer, shown: frozenset[int]) -> Any:
    kind, form = matcher_class(), grammar.form
    for i, token in enumerate(grammar.tokens):
        form = form.replace(f"@{i}]", f"{_id(token, tokenizer)}]")
    words = vocabulary(tokenizer, shown)
    made = roomy(lambda: kind(words, form, log_level=0, limits=limits()))
    may_begin = made.is_accepting() or any(made.compute_bitmask())
    if not may_begin or (made.is_error() and NO_EXTENSION in made.get_error()):
        raise GrammarError(
            f"{grammar.kind}: no token of the vocabulary can start a valid response; change the "
            "constraint"
        )
    if made.is_error():
        raise GrammarError(one_line(grammar.kind, made.get_error()))
    return UniqueKeys(made, _pieces(tokenizer)) if grammar.free_keys else made


def _pieces(tokenizer: Tokenizer) -> TokenTexts:
    if tokenizer not in _PIECES:
        _PIECES[tokenizer] = TokenTexts(_GuidanceTokens(tokenizer, NONE).tokens)
    return _PIECES[tokenizer]


def _id(token: TokenChoice, tokenizer: Tokenizer) -> int:
    if isinstance(token.which, int):
        if token.which < tokenizer.n_vocab:
            return token.which
        raise GrammarError(
            f"grammar: token {token.which} must be in the vocabulary, 0..{tokenizer.n_vocab - 1}"
        )
    ids = tokenizer.tokenize(token.which, add_special=False)
    if len(ids) != 1:
        raise GrammarError(
            f"grammar: {token.which} is {len(ids)} tokens of this vocabulary, not one; write it "
            f'as text: "{token.which}"'
        )
    return ids[0]
