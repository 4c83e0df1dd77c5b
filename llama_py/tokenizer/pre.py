"""Pre-tokenizers: how a text is cut into words before merging, by `tokenizer.ggml.pre`.

A pre-tokenizer is a list of patterns, applied one after the other: each cuts the words of the one
before into matches and what is between them. The patterns mean what llama.cpp's mean
(llama-vocab.cpp:llm_tokenizer_bpe, unicode.cpp), in the syntax of the `tokenizers` library's Regex.

To add one: an entry in `PRE_TOKENIZERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PreTokenizer:
    """`ignore_merges`: a word that is a token is that token. `add_bos`: unless the file has it."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False

    def build(self) -> Any:
        """The library's object: cuts a text, then writes its bytes as GPT-2's characters."""
        from tokenizers import Regex, pre_tokenizers

        steps = [pre_tokenizers.Split(Regex(p), "isolated") for p in self.patterns]
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([*steps, to_bytes])


# 's, 't, ... in either case. Not (?i:...), which also matches the long s (U+017F).
_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = "|".join(
    (_CONTRACTION, r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{N}{1,3}", _PUNCTUATION, _SPACES)
)
_QWEN2 = "|".join((_CONTRACTION, r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{N}", _PUNCTUATION, _SPACES))
_QWEN35 = "|".join(
    (
        _CONTRACTION,
        r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
        r"\p{N}",
        r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
        _SPACES,
    )
)

# llama.cpp tells upper from lower case in ASCII only; any other letter may stand in either place.
_CAPITALS, _SMALLS = r"(?:(?=\p{L})[^a-z])", r"(?:(?=\p{L})[^A-Z])"
_CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALLS}+%s",
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALLS}*%s",
)
_CASED_PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = "|".join((*(p % "" for p in _CASED), r"\p{N}", _CASED_PUNCTUATION, _SPACES))
_GPT4O = "|".join(
    (*(p % (_CONTRACTION + "?") for p in _CASED), r"\p{N}{1,3}", _CASED_PUNCTUATION, _SPACES)
)

_HAN = (
    r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2EBEF}"
    r"\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}"
)
# As llama.cpp, not as the original: capitals and combining marks do not end or join a word.
_KIMI_K2 = "|".join(
    (
        rf"[{_HAN}]+",
        rf"[^\r\n\p{{L}}\p{{N}}]?(?:(?![{_HAN}])\p{{L}})+{_CONTRACTION}?",
        r"\p{N}{1,3}",
        _PUNCTUATION,
        _SPACES,
    )
)

_DEEPSEEK_LETTERS = (
    "A-Za-z"
    "µÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕ"
    "ἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤ"
    "Ⳬ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
# To llama.cpp all white space is ASCII here, so a range does not match U+2003 or U+3000 inside it.
_DEEPSEEK_CJK = r"(?:(?!\s)[一-龥ࠀ-一가-\x{D7FF}])+"
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_DEEPSEEK_LETTERS}]+",
    r"\s?[!-/:-~！-／：-～‘-‟\x{3001}-。]+",
    r"\s+\z",
    _DEEPSEEK_CJK,
    r"\p{N}+",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}")
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES,
)
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")
_FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")


def _names(names: str, pre: PreTokenizer) -> dict[str, PreTokenizer]:
    return dict.fromkeys(names.split(), pre)


PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    **_names("default", PreTokenizer(_DEFAULT)),
    **_names("gpt-2 phi-2 mpt olmo jais trillion exaone4 gigachat mellum", PreTokenizer((_GPT2,))),
    **_names(
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2",
        PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True),
    ),
    **_names("dbrx smaug-bpe", PreTokenizer((_LLAMA3,))),
    **_names("glm4 glm5", PreTokenizer((_LLAMA3,), ignore_merges=True)),
    **_names(
        "qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan solar-open grok-2", PreTokenizer((_QWEN2,))
    ),
    **_names("qwen35", PreTokenizer((_QWEN35,))),
    **_names("tekken", PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True)),
    **_names("gpt-4o llama4 kanana2 minimax-m2", PreTokenizer((_GPT4O,))),
    **_names("kimi-k2", PreTokenizer((_KIMI_K2,))),
    **_names(
        "smollm starcoder refact command-r codeshell exaone minerva-7b",
        PreTokenizer((r"\p{N}", _GPT2)),
    ),
    **_names("deepseek-llm", PreTokenizer(_DEEPSEEK_LLM)),
    **_names("deepseek-coder", PreTokenizer(_DEEPSEEK_CODER)),
    **_names("deepseek-v3 hunyuan-dense joyai-llm", PreTokenizer(_DEEPSEEK_V3)),
    **_names("falcon", PreTokenizer(_FALCON)),
}
