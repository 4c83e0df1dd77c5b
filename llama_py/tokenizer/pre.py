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
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"


def _any(*patterns: str) -> str:
    return "|".join(patterns)


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = _any(_CONTRACTION, _WORD, r"\p{N}{1,3}", _PUNCTUATION, _SPACES)
_QWEN2 = _any(_CONTRACTION, _WORD, r"\p{N}", _PUNCTUATION, _SPACES)
_QWEN35 = _any(
    _CONTRACTION,
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
    r"\p{N}",
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
    _SPACES,
)
_UFAKZEKA = _any(_WORD, r"\p{N}", _PUNCTUATION, _SPACES)
_MINICPM5 = (r"\p{N}{1,3}", _any(_CONTRACTION, _WORD, r"\p{N}+", _PUNCTUATION, _SPACES))
_SEED_CODER = _any(_CONTRACTION, _WORD, r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+", _SPACES)
_EXAONE_MOE = _any(
    _CONTRACTION,
    r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
    r"\p{N}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]?",
    _SPACES,
)
_JAIS2 = _any(
    _CONTRACTION,
    _WORD,
    r"\p{N}{1,3}",
    _PUNCTUATION,
    r"\s*[\r\n]+",
    *(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)),
    r"\s{1,2}(?!\S)|\s",
)

# llama.cpp tells upper from lower case in ASCII only; any other letter may stand in either place.
_CASED = (
    r"[^\r\n\p{L}\p{N}]?(?:(?=%(letter)s)[^a-z])*(?:(?=%(letter)s)[^A-Z])+%(end)s",
    r"[^\r\n\p{L}\p{N}]?(?:(?=%(letter)s)[^a-z])+(?:(?=%(letter)s)[^A-Z])*%(end)s",
)
_CASED_PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"


def _cased(numbers: str, letter: str = r"\p{L}", end: str = "") -> str:
    words = (pattern % {"letter": letter, "end": end} for pattern in _CASED)
    return _any(*words, numbers, _CASED_PUNCTUATION, _SPACES)


_TEKKEN = _cased(r"\p{N}")
_GPT4O = _cased(r"\p{N}{1,3}", end=_CONTRACTION + "?")
_GRANITE_EMBED = _cased(r"\p{N}{1,3}", r"[\p{L}\p{M}]", _CONTRACTION + "?")

# In \p{Lu}, \p{Ll} and the like llama.cpp takes any letter, so the original's two cases are one.
_MARKED_WORD = rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+{_CONTRACTION}?"
_YOUTU = (
    r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
    _any(_MARKED_WORD, r"\p{N}", _CASED_PUNCTUATION, _SPACES),
)
# Groups of three digits from the right; what is before a number goes with its first group.
_THREES_FROM_RIGHT = r"\P{N}*+(?:(?<!\p{N})\p{N}{1,2}(?=(?:\p{N}{3})*(?!\p{N}))|\p{N}{3})|\P{N}+"
_TINY_AYA = (
    _THREES_FROM_RIGHT,
    _any(_MARKED_WORD, r"\p{N}{1,3}", _CASED_PUNCTUATION, _SPACES),
)
_SUPERBPE = (r"\p{N}+", r"(?=(?:[0-9]{3})+(?![0-9]))")

_HAN = (
    r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2EBEF}"
    r"\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}"
)
# As llama.cpp, not as the original: capitals and combining marks do not end or join a word.
_KIMI_K2 = _any(
    rf"[{_HAN}]+",
    rf"[^\r\n\p{{L}}\p{{N}}]?(?:(?![{_HAN}])\p{{L}})+{_CONTRACTION}?",
    r"\p{N}{1,3}",
    _PUNCTUATION,
    _SPACES,
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
_DEEPSEEK_WORD = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
)
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    _any(_DEEPSEEK_WORD, r" ?[\p{P}\p{S}]+[\r\n]*", _SPACES),
)
_SPARK = (
    *_DEEPSEEK_V3[:2],
    _any(_DEEPSEEK_WORD, r" ?[\p{P}\p{S}]+", r"[\r\n]", r"\s+(?!\S)", r"\s+"),
    r"\p{N}",
)
_AFMOE = (
    _THREES_FROM_RIGHT,
    r"[一-鿿㐀-䶿\x{8C48}-\x{FAFF}぀-ゟ゠-ヿ･-ﾟ⼀-⿟\x{0E40}-\x{0E7F}\x{0E80}-\x{0EFF}"
    r"\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}"
    r"\x{1100}-\x{11FF}]+",
    _DEEPSEEK_V3[2],
)
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
_CHAMELEON = (
    r"<sentinel:[0-9]+>",
    r"IMGIMG[A-I]{1,4}Z",
    r"[\t\n]|    |  ",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
    _GPT2,
)
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")
_FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")


def _names(names: str, pre: PreTokenizer) -> dict[str, PreTokenizer]:
    return dict.fromkeys(names.split(), pre)


PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    **_names("default", PreTokenizer(_DEFAULT)),
    **_names(
        "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat mellum a.x-4.0 "
        "modern-bert roberta-bpe jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code",
        PreTokenizer((_GPT2,)),
    ),
    **_names(
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True),
    ),
    **_names("dbrx smaug-bpe chatglm-bpe", PreTokenizer((_LLAMA3,))),
    **_names("glm4 glm5", PreTokenizer((_LLAMA3,), ignore_merges=True)),
    **_names(
        "qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan solar-open grok-2 kormo f2llmv2 "
        "bailingmoe bailingmoe2 llada-moe",
        PreTokenizer((_QWEN2,)),
    ),
    **_names("qwen35", PreTokenizer((_QWEN35,))),
    **_names("ufakzeka", PreTokenizer((_UFAKZEKA,))),
    **_names("laguna", PreTokenizer((r"[^\n]+|\n+", _QWEN2))),
    **_names("minicpm5", PreTokenizer(_MINICPM5, ignore_merges=True)),
    **_names("seed-coder", PreTokenizer((_SEED_CODER,))),
    **_names("exaone-moe", PreTokenizer((_EXAONE_MOE,))),
    **_names("jais-2", PreTokenizer((_JAIS2,))),
    **_names("tekken", PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True)),
    **_names("gpt-4o llama4 kanana2 talkie minimax-m2", PreTokenizer((_GPT4O,))),
    **_names("granite-embed-multi-97m", PreTokenizer((_GRANITE_EMBED,), ignore_merges=True)),
    **_names("tiny_aya cohere2moe", PreTokenizer(_TINY_AYA)),
    **_names("youtu", PreTokenizer(_YOUTU, ignore_merges=True)),
    **_names("kimi-k2", PreTokenizer((_KIMI_K2,))),
    **_names(
        "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
        PreTokenizer((r"\p{N}", _GPT2)),
    ),
    **_names("superbpe", PreTokenizer(_SUPERBPE)),
    **_names("deepseek-llm", PreTokenizer(_DEEPSEEK_LLM)),
    **_names("deepseek-coder", PreTokenizer(_DEEPSEEK_CODER)),
    **_names("deepseek-v3 hunyuan-dense joyai-llm hy_v4", PreTokenizer(_DEEPSEEK_V3)),
    **_names("spark2_5", PreTokenizer(_SPARK)),
    **_names("afmoe", PreTokenizer(_AFMOE)),
    **_names("falcon", PreTokenizer(_FALCON)),
    **_names("poro-chat bloom gpt3-finnish", PreTokenizer((_BLOOM,))),
    **_names("viking", PreTokenizer((_BLOOM, r"\p{N}"))),
    **_names("chameleon", PreTokenizer(_CHAMELEON, add_bos=True)),
}
